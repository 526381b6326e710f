"""Regular expressions of strangers, in time linear in the text, as RE2's are: Python's own can be made to run for years."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.protocol.error_codes import ErrorCode

CharTest: TypeAlias = Callable[[str], bool]
Step: TypeAlias = tuple[CharTest | None, tuple[int, ...]]
"""A test of the next character and the step after it; without a test, steps to go on with at once."""

MAX_STEPS: Final = 10_000
MAX_REPEAT: Final = 1000  # RE2's
MAX_DEPTH: Final = 100

_CLASSES: Final = {letter: re.compile(rf"\{letter}", re.ASCII) for letter in "dDwWsS"}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_REPEAT: Final = re.compile(r"\{(\d{1,4})(,)?(\d{1,4})?\}")
_SPECIAL: Final = frozenset("|)")


class LinearPattern:
    """The part of RE2's syntax that names are looked for with: literals, `.`, classes, groups, alternatives, repetition, `^` and
    `$` at the ends. Raises ApiException(INVALID_REGULAR_EXPRESSION) for anything else."""

    def __init__(self, text: str) -> None:
        self._steps: list[Step] = []
        start = _Parser(text, self._steps).parsed(self._add(None))
        self._start = self._closure([start])

    def matches(self, text: str) -> bool:
        """The whole text."""
        now = self._start
        for char in text:
            now = self._closure(after[0] for test, after in map(self._steps.__getitem__, now) if test is not None and test(char))
            if not now:
                return False
        return 0 in now

    def _add(self, test: CharTest | None) -> int:
        self._steps.append((test, ()))
        return len(self._steps) - 1

    def _closure(self, steps: Iterable[int]) -> frozenset[int]:
        seen: set[int] = set()
        todo = list(steps)
        while todo:
            step = todo.pop()
            if step not in seen:
                seen.add(step)
                test, after = self._steps[step]
                if test is None:
                    todo.extend(after)
        return frozenset(seen)


Part: TypeAlias = Callable[[int], int]
"""Appends the steps of a part of the pattern, given the step that comes after it; the part's first step."""


class _Parser:
    """Recursive descent; steps are made from the end of the pattern to its start."""

    def __init__(self, text: str, steps: list[Step]) -> None:
        self._text = text.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith(r"\$"):
            self._text = self._text[:-1]
        self._whole = text
        self._at = 0
        self._depth = 0
        self._steps = steps

    def parsed(self, end: int) -> int:
        part = self._alternatives()
        if self._at < len(self._text):
            self._fail("unexpected )")
        return part(end)

    def _alternatives(self) -> Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else lambda after: self._step(None, *(part(after) for part in parts))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._at < len(self._text) and self._text[self._at] not in _SPECIAL:
            parts.append(self._repeated(self._atom()))

        def build(after: int) -> int:
            for part in reversed(parts):
                after = part(after)
            return after

        return build

    def _repeated(self, part: Part) -> Part:
        least, most = self._bounds()
        if (least, most) == (1, 1):
            return part
        self._take("?")  # lazy: the same for the whole text
        if self._at < len(self._text) and self._text[self._at] in "*+?":
            self._fail("invalid nested repetition operator")
        return lambda after: self._repetition(part, least, most, after)

    def _repetition(self, part: Part, least: int, most: int | None, after: int) -> int:
        if most is None:
            loop = self._step(None)
            self._steps[loop] = (None, (part(loop), after))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self._step(None, part(after), end)
        for _ in range(least):
            after = part(after)
        return after

    def _bounds(self) -> tuple[int, int | None]:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return 1, 1
        self._at = found.end()
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            self._fail("invalid repeat count")
        return least, most

    def _atom(self) -> Part:
        char = self._next()
        if char == "(":
            return self._group()
        if char in "*+?":
            self._fail("missing argument to repetition operator")
        if char in "^$":
            self._fail("only the whole of a name is matched")
        test = self._test(char)
        return lambda after: self._step(test, after)

    def _group(self) -> Part:
        if self._take("?") and not self._take(":"):
            self._fail("invalid or unsupported Perl syntax")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("expression nests too deeply")
        part = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            self._fail("missing closing )")
        return part

    def _test(self, char: str) -> CharTest:
        if char == ".":
            return lambda found: found != "\n"
        if char == "[":
            return self._set()
        if char == "\\":
            return self._escaped(self._next())
        return char.__eq__

    def _escaped(self, char: str) -> CharTest:
        if char in _CLASSES:
            pattern = _CLASSES[char]
            return lambda found: pattern.match(found) is not None
        return self._literal(char).__eq__

    def _literal(self, char: str) -> str:
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum():
            self._fail(f"invalid escape sequence: \\{char}")
        return char

    def _set(self) -> CharTest:
        is_negated = self._take("^")
        tests = [self._member(self._next())]  # a bracket in the first place is one of them
        while not self._take("]"):
            tests.append(self._member(self._next()))
        return lambda found: any(test(found) for test in tests) is not is_negated

    def _member(self, first: str) -> CharTest:
        if first == "\\":
            escape = self._next()
            if escape in _CLASSES:
                return self._escaped(escape)
            first = self._literal(escape)
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return first.__eq__
        self._at += 1
        last = self._next()
        last = self._literal(self._next()) if last == "\\" else last
        if last < first:
            self._fail("invalid character class range")
        return lambda found: first <= found <= last

    def _next(self) -> str:
        if self._at >= len(self._text):
            self._fail("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _step(self, test: CharTest | None, *after: int) -> int:
        if len(self._steps) >= MAX_STEPS:
            self._fail("expression too large")
        self._steps.append((test, after))
        return len(self._steps) - 1

    def _fail(self, why: str) -> NoReturn:
        text = f"Transaction ID pattern `{self._whole[:200]}` is not a valid regular expression: {why}."
        raise ApiException(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
