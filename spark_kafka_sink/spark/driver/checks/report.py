"""The report of `check`: one line per check, as text, HTML and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from html import escape
from typing import Any, Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import DeadlineError, KafkaSinkError

_WIDTH: Final = 110
_WORD: Final = re.compile(r"`[^`]*`\S*|\S+")
_TO_GRANT: Final = "; to grant it, "
"""Precedes the remedy in the text of an AuthorizationError (security/acls.py)."""


class Status(StrEnum):
    """The result of one line."""

    OK = "ok"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


MARKS: Final = {Status.OK: "✓", Status.FAILED: "✗", Status.NOT_CHECKED: "–"}
PLAIN_MARKS: Final = {Status.OK: "ok  ", Status.FAILED: "FAIL", Status.NOT_CHECKED: "--  "}
"""Marks for terminals whose encoding lacks the others."""

_COLORS: Final = {Status.OK: "#1a7f37", Status.FAILED: "#cf222e", Status.NOT_CHECKED: "#6e7781"}


@dataclass(frozen=True, slots=True)
class CheckLine:
    """The result of one check.

    Attributes:
        name: the subject, such as "login".
        status: whether the check passed, failed, or was not made.
        text: the finding.
        to_do: what to do about a cross; for a tick, a hint or "".
        link: address of the documentation's section about the error; "" if there is none.
        timed_out: whether the check was not made because the time ran out.
    """

    name: str
    status: Status
    text: str
    to_do: str = ""
    link: str = ""
    timed_out: bool = False

    def as_json(self) -> dict[str, str | bool]:
        """Returns the line's fields, for programs."""
        return {**asdict(self), "status": self.status.value}


def ok(name: str, text: str, hint: str = "") -> CheckLine:
    return CheckLine(name, Status.OK, text, hint)


def failed(name: str, text: str, to_do: str = "", link: str = "") -> CheckLine:
    return CheckLine(name, Status.FAILED, text, to_do, link)


def not_checked(name: str, text: str, to_do: str = "", *, timed_out: bool = False) -> CheckLine:
    return CheckLine(name, Status.NOT_CHECKED, text, to_do, timed_out=timed_out)


def not_checked_after(name: str, error: KafkaSinkError, text: str = "") -> CheckLine:
    """Returns the line of a check that an error prevented. text: precedes the error's text."""
    return not_checked(name, f"{text}: {error}" if text else str(error), timed_out=isinstance(error, DeadlineError))


def failed_by(name: str, error: KafkaSinkError, to_do: str = "") -> CheckLine:
    """Returns the cross of an error, with its code and link. `to_do` begins with the ACL of a missing right."""
    text, _, grant = str(error).partition(_TO_GRANT)
    return failed(name, text, ", or ".join(part for part in (grant, to_do) if part), error.link)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of `check`. It prints as a list of ticks and crosses; a notebook shows it as a table.

    Attributes:
        lines: the results, in the order of the report.
        seconds: how long the check took.
    """

    lines: tuple[CheckLine, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no line is a cross, and the time was enough for every check."""
        return self.complete and not self.failed

    @property
    def complete(self) -> bool:
        """Whether the time was enough for every check."""
        return not any(line.timed_out for line in self.lines)

    @property
    def failed(self) -> tuple[CheckLine, ...]:
        """The crosses."""
        return tuple(line for line in self.lines if line.status is Status.FAILED)

    @property
    def wrong_options(self) -> bool:
        """Whether the options are wrong, so that nothing else could be checked."""
        return any(line.name == OPTIONS for line in self.failed)

    def __repr__(self) -> str:
        return self.text()

    def text(self, *, plain: bool = False) -> str:
        """Returns the report as text, with ASCII marks if it is `plain`."""
        marks = PLAIN_MARKS if plain else MARKS
        width = max((len(line.name) for line in self.lines), default=0)
        parts = [self._headline()]
        for line in self.lines:
            parts += _line_text(line, marks[line.status], width)
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="color:{_COLORS[line.status]}">{MARKS[line.status]}</td>'
            f'<td style="text-align:left">{escape(line.name)}</td><td style="text-align:left">{_cell(line)}</td></tr>'
            for line in self.lines
        )
        return f"<p>{escape(self._headline())}</p><table><tbody>{rows}</tbody></table>"

    def as_json(self) -> dict[str, Any]:
        """Returns the report for programs: `ok`, `complete`, `seconds` and `checks`, with the fields of each line."""
        checks = [line.as_json() for line in self.lines]
        return {"ok": self.ok, "complete": self.complete, "seconds": round(self.seconds, 3), "checks": checks}

    def _headline(self) -> str:
        counts = Counter(line.status for line in self.lines)
        failures = counts[Status.FAILED]
        result = f"{counted(failures, 'problem')} found" if failures else "No problems found"
        each = ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
        late = "" if self.complete else ", but the time ran out before everything was checked (raise the timeout)"
        return f"{result} in {self.seconds:.1f} s{late}: {each}"


OPTIONS: Final = "options"


def _line_text(line: CheckLine, mark: str, width: int) -> Iterator[str]:
    start, indent = f"{mark} {line.name:<{width}}  ", " " * (len(mark) + width + 3)
    for number, part in enumerate(_wrapped(line.text, _WIDTH - len(indent))):
        yield (start if number == 0 else indent) + part
    label = "hint: " if line.status is Status.OK else "to do: "
    for number, part in enumerate(_wrapped(line.to_do, _WIDTH - len(indent) - len(label))):
        yield indent + (label if number == 0 else " " * len(label)) + part
    if line.link:
        yield f"{indent}see {line.link}"


def _wrapped(text: str, width: int) -> list[str]:
    """Returns lines of at most `width` characters. A command in backticks stays in one line, so that it can be copied.

    The text's own lines, such as those about a schema's fields, stay apart and keep their indent.
    """
    lines: list[str] = []
    for own in text.splitlines():
        indent = own[: len(own) - len(own.lstrip())]
        for place, word in enumerate(_WORD.findall(own)):
            if place and len(lines[-1]) + 1 + len(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(f"{indent}{'  ' if place and indent else ''}{word}")
    return lines


def _cell(line: CheckLine) -> str:
    parts = [escape(one) for one in line.text.splitlines()]
    if line.to_do:
        parts.append(f"<b>{'Hint' if line.status is Status.OK else 'To do'}:</b> {escape(line.to_do)}")
    if line.link:
        parts.append(f'<a href="{escape(line.link)}">{escape(line.link)}</a>')
    return "<br>".join(parts)
