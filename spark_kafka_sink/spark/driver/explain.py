"""`explain(error)` finds the sink's error in what Spark raises.

Spark carries only the text of a task's exception to the driver, inside two stack traces. The text is enough, because each error
of this package begins with its code in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import import_module
from typing import Any, Final

from spark_kafka_sink.errors import DOCS_URL, KafkaSinkError, LocalError

# Failures of Spark that a user of the sink meets first: a pattern of Spark's text, what to do, and the page that has more.
_HINTS: Final = (
    (
        r"No module named '(?:spark_kafka_sink|pyarrow|numpy)",
        "Spark's Python workers run a Python without the package. Before Spark starts, set PYSPARK_PYTHON to one that has it.",
        "troubleshooting.html#modulenotfounderror-in-a-python-worker",
    ),
    (
        r"DATA_SOURCE_NOT_FOUND\].*kafka_sink|ClassNotFoundException: kafka_sink\.",
        "Call spark_kafka_sink.register(spark) in this thread: another Python thread does not find what was registered elsewhere."
        " Without it, Spark looks for the format with the Python of PYSPARK_PYTHON, or else with the first python3 of PATH, which"
        " must have the package.",
        "troubleshooting.html#data-source-not-found",
    ),
    (
        r"CANNOT_PARSE_DATATYPE",
        "A column has a type that this version of PySpark cannot read. Drop it or cast it before the write, even if it is not"
        " written: publish(df, ...) and check(options, df) name the column and the cast.",
        "troubleshooting.html#cannot_parse_datatype",
    ),
    (
        r"kafka_sink.* cannot be written in .* mode",
        "Add .mode('append'), which is the only mode: a topic cannot be overwritten.",
        "migrating.html",
    ),
    (
        r"kafka_sink does not support Update mode",
        "Spark does not allow update mode for Python data sources. Write"
        " df.writeStream.outputMode('update').foreachBatch(foreach_batch(options)).",
        "migrating.html",
    ),
)
_NO_ERROR: Final = "there is no error"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sink's error in an exception of Spark. It prints as a few lines, and notebooks show it as a table.

    Attributes:
        error: The sink's error, or None if the sink did not raise.
        message: The error's text without its code, or Spark's root cause in one line if there is no error of the sink.
        facts: Names in the error's text, such as topic, broker, column and option.
    """

    error: KafkaSinkError | None
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str | None:
        """The error's code, for example METADATA_TIMEOUT, or None."""
        return None if self.error is None else self.error.code

    @property
    def link(self) -> str | None:
        """The address of the documentation's section about the error, or None."""
        return None if self.error is None else self.error.link

    def __str__(self) -> str:
        if self.error is None:
            return self._without_error()
        facts = [f"{name}: {value}" for name, value in self._shown_facts()]
        return "\n".join([f"[{self.error.code}] {self.message}", *facts, f"See {self.error.link}"])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        if self.error is None:
            return "".join(f"<p>{escape(line)}</p>" for line in self._without_error().splitlines())
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in self._shown_facts())
        table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
        message = escape(self.message).replace("\n", "<br>")
        link = escape(self.error.link)
        return f'<p><b>[{self.error.code}]</b> {message}</p>{table}<p><a href="{link}">{link}</a></p>'

    def _shown_facts(self) -> list[tuple[str, Any]]:
        """Returns the facts for people. A list of fields is in the message already, with a line for each."""
        return [(name, value) for name, value in self.facts.items() if not isinstance(value, tuple)]

    def _without_error(self) -> str:
        if self.message == _NO_ERROR:
            return "There is no error to explain."
        found = f"No error of spark-kafka-sink was found. Spark's root cause: {self.message}"
        hints = (f"{hint} See {DOCS_URL}/{page}" for pattern, hint, page in _HINTS if re.search(pattern, self.message))
        return "\n".join([found, *hints])


def explain(failure: object) -> Explanation:
    """Finds the sink's error in an exception of Spark, or else Spark's root cause in one line.

    Args:
        failure: An exception that Spark raised, a streaming query, the result of `query.exception()`, or a text such as a log
            or a traceback.
    """
    if not isinstance(failure, BaseException | str) and callable(getattr(failure, "exception", None)):
        failure = failure.exception()  # type: ignore[attr-defined]
    if failure is None:
        return Explanation(None, _NO_ERROR)
    found = sink_error(failure)
    if found is None:
        return Explanation(None, _root_cause(_text_and_notes(failure)))
    message = "\n".join([found.message, *(note for note in _notes(found) if not note.startswith(_SEE))])
    first, _, _ = found.message.partition("\n")  # the next lines are about fields of a schema
    return Explanation(found, message, facts_of(first) | {k: v for k, v in found.facts.items() if v is not None})


def sink_error(failure: object, *, is_certain: bool = False, handled: BaseException | None = None) -> KafkaSinkError | None:
    """Returns the sink's error in an exception or a text, or None if there is none.

    The error itself is returned where it is the exception, or what the exception was raised from. Elsewhere it is made again
    from its text, with the facts that the text names.

    Args:
        failure: An exception or a text.
        is_certain: Whether a line must begin with the error's class, as in a traceback. A code alone may be another program's,
            and data in another program's error may contain the rest.
        handled: The exception that was being handled before `failure` was raised. Python makes it the context of `failure`, but
            it is not what failed.
    """
    for chain in _chains(failure, handled) if isinstance(failure, BaseException) else ([failure],):
        for one in chain:
            if isinstance(one, KafkaSinkError):
                return one
        for pattern in (_raised_line(),) if is_certain else (_raised_line(), _coded_line()):
            for one in chain:
                found = _parsed(_text_and_notes(one), pattern)
                if found is not None:
                    return found
    return None


def linked(error: KafkaSinkError) -> KafkaSinkError:
    """Adds the link to the error's documentation as a note and drops the traceback. Raise the result
    `from plug_in_error(error)`, so that users read the error alone, with what failed in their own code.
    """
    note = f"{_SEE}{error.link}"
    if note not in _notes(error):
        error.add_note(note)
    return error.with_traceback(None)


def plug_in_error(error: KafkaSinkError) -> BaseException | None:
    """Returns the exception of a serializer, partitioner or other class of the user that caused the error, or None.

    Its stack is in the user's code. Other errors name their causes in their text.
    """
    cause = error.__cause__ if isinstance(error, LocalError) else None
    while isinstance(cause, KafkaSinkError):
        cause = cause.__cause__
    return cause


def _kinds(base: type[KafkaSinkError]) -> Iterator[type[KafkaSinkError]]:
    yield base
    for child in base.__subclasses__():
        yield from _kinds(child)


@cache
def _kinds_by_code() -> Mapping[str, type[KafkaSinkError]]:
    # The modules outside of errors.py that define an error with a new code.
    import_module("spark_kafka_sink.exactly_once.commit_log_topic")
    import_module("spark_kafka_sink.exactly_once.commit_record")
    import_module("spark_kafka_sink.exactly_once.log_writer")
    found: dict[str, type[KafkaSinkError]] = {}
    for kind in _kinds(KafkaSinkError):
        found.setdefault(kind.code, kind)  # a class that inherits its code comes after the base
    return found


@cache
def _raised_line() -> re.Pattern[str]:
    # Spark 4.3 puts its own words before it if spark.sql.execution.pyspark.udf.hideTraceback.enabled is set, on Connect at least.
    spark = r"\[PYTHON_EXCEPTION\] An exception was thrown from the Python worker: "
    return re.compile(rf"^(?:{spark})?spark_kafka_sink\.[\w.]+: \[({'|'.join(_kinds_by_code())})\] (.*)$", re.MULTILINE)


@cache
def _coded_line() -> re.Pattern[str]:
    return re.compile(rf"^.*?\[({'|'.join(_kinds_by_code())})\] (.*)$", re.MULTILINE)


_SEE: Final = "See "

# Lines that Spark, Java or Python write after an error's own lines.
_END: Final = re.compile(
    r"\s*$|\s+at |\s*File \"|Traceback |During handling of |The above exception |JVM stacktrace|Driver stacktrace|Caused by: |"
    r"\s*\.\.\. \d+ more|\s*SQLSTATE: |=== "
)
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_STACK: Final = re.compile(r"^(?:\s+at |JVM stacktrace|Driver stacktrace|Caused by: )", re.MULTILINE)


def _parsed(text: str, pattern: re.Pattern[str]) -> KafkaSinkError | None:
    """Returns the error whose text is in `text`: the last one of a chain of errors, which the others have led to."""
    first = pattern.search(text)
    if first is None:
        return None
    stack = _STACK.search(text, first.end())
    *_, match = pattern.finditer(text, first.start(), stack.start() if stack else len(text))
    lines = [match[2]]
    for line in text[match.end() :].splitlines()[1:]:
        if _END.match(line):
            break
        lines.append(line)
    message, *notes = (_SQLSTATE.sub("", line).rstrip() for line in lines)
    error = _kinds_by_code()[match[1]](message, **facts_of(message))
    for note in notes:
        error.add_note(note)
    return error


_FACTS: Final = {
    "topic": re.compile(r"\btopic '?(?!name\b)([\w.-]*\w)'?[:,;]"),
    "partition": re.compile(r"(?<!Spark )\bpartition (\d+)\b"),
    # A host has a letter or a dot, which tells it from a time such as 12:30 or 2026-11-23T12:30:05.
    "broker": re.compile(
        r"(?<![\w.:/-])(?!\d{4}-\d\d-\d\dT)((?=[\w-]*[A-Za-z.])[A-Za-z0-9][\w.-]*:\d{2,5}|\[[0-9a-f:]+\]:\d{2,5})(?!:\d)\b"
    ),
    # Not the position in a text that is no JSON, as json says it: line 1 column 2 (char 1).
    # Nor the words that follow "column" in sentences such as "no column is left".
    "column": re.compile(r"\bcolumn '?(?!\d+ \(char \d|(?:is|of|has|in|and)\b)([\w.-]*\w)"),
    "option": re.compile(r"\boption '?(?!(?:is|of|has|in|and)\b)([a-z][\w.-]*\w)"),
    "error": re.compile(r"\b([A-Z]{3,}(?:_[A-Z]+)+)\b"),
}


def facts_of(message: str) -> dict[str, Any]:
    """Returns the topic, partition, broker, column, option and Kafka error that a message names."""
    found = {name: pattern.search(message) for name, pattern in _FACTS.items()}
    return {name: int(match[1]) if name == "partition" else match[1] for name, match in found.items() if match}


def _chains(error: BaseException, handled: BaseException | None = None) -> Iterator[list[BaseException]]:
    """Yields the exception with its causes, then what was being handled when it was raised, up to `handled`.

    They are apart because the second may be the failure of an earlier try.
    """
    seen = {id(handled)}
    one: BaseException | None = error
    chain: list[BaseException] = []
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        chain.append(one)
        if one.__cause__ is None:
            yield chain
            chain = []
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    if chain:
        yield chain


def _text_and_notes(failure: object) -> str:
    return "\n".join([_text(failure), *_notes(failure)]) if isinstance(failure, BaseException) else str(failure)


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # py4j's asks the JVM for it, which may have ended
        return type(error).__name__


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


_CAUSED_BY: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def _root_cause(text: str) -> str:
    """Returns the last line of Python's traceback, else Java's last cause, else the first line."""
    before, traceback, after = text.partition("Traceback (most recent call last):\n")
    if traceback:
        for line in after.splitlines():
            if line.strip() and not line.startswith((" ", "\t")):
                return line.strip()
    causes = [cause for cause in _CAUSED_BY.findall(text) if "Traceback (most recent call last)" not in cause]
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    line = causes[-1].strip() if causes else (lines[0] if lines else "unknown")
    return _SQLSTATE.sub("", line)
