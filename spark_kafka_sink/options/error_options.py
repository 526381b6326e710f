"""Options for bad rows: `on.error`, its limits, and `dead.letter.*`. A bad row is one that cannot be delivered to its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import INT64_MAX, Kind, SinkOption, integer, number, one_of, topic_name

ON_ERROR: Final = "on.error"
MAX_ROWS: Final = "on.error.max.rows"
MAX_FRACTION: Final = "on.error.max.fraction"
DEAD_LETTER_TOPIC: Final = "dead.letter.topic"
HEADER_PREFIX: Final = "dead.letter.header.prefix"

# DeadLetterQueueReporter.ERROR_HEADER_PREFIX, with the dot that it puts before each name
CONNECTS_PREFIX: Final = "__connect.errors."


class OnError(StrEnum):
    """The fate of a bad row. fail: its task fails. dead-letter: it goes to another topic. drop: it is left out."""

    FAIL = "fail"
    DEAD_LETTER = "dead-letter"
    DROP = "drop"


_NEW: Final = "Spark's sink has no such option."

ERROR_OPTIONS: Final[Sequence[SinkOption]] = (
    SinkOption(
        ON_ERROR,
        ", ".join(f"`{each}`" for each in OnError),
        f"`{OnError.FAIL}`",
        "What happens to a [bad row](bad-rows.md), which cannot be sent or which a broker rejects. `fail`: its task fails."
        f" `dead-letter`: the row goes to the topic of `{DEAD_LETTER_TOPIC}`, with headers that say why. `drop`: the row is left"
        " out. Reports count bad rows by reason.",
        "Spark's sink has no such option. A bad row fails its job.",
    ),
    SinkOption(
        DEAD_LETTER_TOPIC,
        "a topic name",
        "",
        f"The topic of bad rows, for `{ON_ERROR}={OnError.DEAD_LETTER}`. It must exist unless the brokers create topics or"
        " `topic.create.*` is set. It must differ from the option `topic`. Another `on.error` does not allow it.",
        _NEW,
    ),
    SinkOption(
        HEADER_PREFIX,
        "text",
        f"`{CONNECTS_PREFIX}`",
        "The prefix of the headers of dead letters that say why a row is bad. The default is that of Kafka Connect.",
        _NEW,
    ),
    SinkOption(
        MAX_ROWS,
        "a whole number",
        "",
        "The most bad rows that a job or micro-batch may have. With more, it fails with"
        " [`[TOO_MANY_BAD_ROWS]`](troubleshooting.md#too_many_bad_rows). A task with more fails at once.",
        _NEW,
    ),
    SinkOption(
        MAX_FRACTION,
        "a number above 0, up to 1",
        "",
        "The largest share of a job's or micro-batch's rows that may be bad. It is checked when all tasks are done.",
        _NEW,
    ),
)

# Options of Kafka Connect, which people know: what to do instead. Written after "unknown option NAME; ".
CONNECTS_NAMES: Final[Mapping[str, str]] = {
    "errors.tolerance": f"use {ON_ERROR}={OnError.DEAD_LETTER} or {ON_ERROR}={OnError.DROP} in place of errors.tolerance=all",
    "errors.deadletterqueue.topic.name": f"use {DEAD_LETTER_TOPIC} with {ON_ERROR}={OnError.DEAD_LETTER}",
    "errors.deadletterqueue.topic.replication.factor": "use topic.create.replication.factor",
    "errors.deadletterqueue.context.headers.enable": f"remove it, because dead letters always have these headers;"
    f" {HEADER_PREFIX} sets their prefix",
    "errors.log.enable": "remove it, because each task with bad rows logs a warning",
    "errors.log.include.messages": "remove it, because a task logs no row, but only its first error, which may quote a value",
    "errors.retry.timeout": "use kafka.delivery.timeout.ms",
    "errors.retry.delay.max.ms": "use kafka.retry.backoff.max.ms",
}


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """The settings for bad rows.

    topic: the dead-letter topic, if bad rows go to one. header_prefix: of its headers. max_rows, max_fraction: the limits for a
    job or micro-batch; None: no limit.
    """

    on_error: OnError = OnError.FAIL
    topic: str | None = None
    header_prefix: str = CONNECTS_PREFIX
    max_rows: int | None = None
    max_fraction: float | None = None

    @property
    def tolerates(self) -> bool:
        """Whether a bad row costs a row and not the job."""
        return self.on_error is not OnError.FAIL


FAIL: Final = ErrorOptions()
"""Bad rows fail their tasks."""


def _prefix(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    _ = value.encode()  # UnicodeEncodeError is a ValueError
    return value


def _fraction(value: object) -> float:
    found: float = number(0, 1).read(value)
    if not found > 0:  # nor NaN
        raise ValueError
    return found


_ON_ERROR: Final = one_of(**{each.value: each for each in OnError})

_KINDS: Final[Mapping[str, Kind]] = {
    DEAD_LETTER_TOPIC: Kind("a valid topic name", partial(topic_name, DEAD_LETTER_TOPIC)),
    HEADER_PREFIX: Kind("text of at least one character", _prefix),
    MAX_ROWS: integer(0, INT64_MAX),
    MAX_FRACTION: Kind("a number above 0, up to 1", _fraction),
}

_USED_BY: Final[Mapping[str, frozenset[OnError]]] = {
    DEAD_LETTER_TOPIC: frozenset({OnError.DEAD_LETTER}),
    HEADER_PREFIX: frozenset({OnError.DEAD_LETTER}),
    MAX_ROWS: frozenset({OnError.DEAD_LETTER, OnError.DROP}),
    MAX_FRACTION: frozenset({OnError.DEAD_LETTER, OnError.DROP}),
}


def error_options(options: Mapping[str, object], topic: str | None, commit_log: str | None = None) -> ErrorOptions:
    """Returns these options among a sink's options.

    Args:
        options: by lower-cased name.
        topic: the value of the option `topic`.
        commit_log: the topic of the commit log, under exactly-once.

    Raises:
        OptionError: a value is not valid, an option has no use with this `on.error`, or the dead-letter topic is missing or is
            one that has another use.
    """
    on_error: OnError = _ON_ERROR.parse(ON_ERROR, options.get(ON_ERROR, OnError.FAIL))
    given = {name: kind.parse(name, options[name]) for name, kind in _KINDS.items() if name in options}
    for name in given:
        if on_error not in _USED_BY[name]:
            needed = " or ".join(f"{ON_ERROR}={each}" for each in OnError if each in _USED_BY[name])
            raise OptionError(f"option {name}: requires {needed}, but {ON_ERROR} is {on_error}", option=name)
    letters = given.get(DEAD_LETTER_TOPIC)
    if on_error is OnError.DEAD_LETTER:
        if letters is None:
            text = f"option {DEAD_LETTER_TOPIC}: is required with {ON_ERROR}={on_error}; name the topic that gets the bad rows"
            raise OptionError(text, option=DEAD_LETTER_TOPIC)
        for other, its_use in ((topic, "the option topic"), (commit_log, "the commit log")):
            if letters == other:
                text = f"option {DEAD_LETTER_TOPIC}: {letters} is also the topic of {its_use}; name another topic"
                raise OptionError(text, option=DEAD_LETTER_TOPIC)
    return ErrorOptions(
        on_error, letters, given.get(HEADER_PREFIX, CONNECTS_PREFIX), given.get(MAX_ROWS), given.get(MAX_FRACTION)
    )


def connects_name(name: str) -> str:
    """Returns what to do instead of an option of Kafka Connect, as `; use ...`, or an empty string for another option."""
    return f"; {CONNECTS_NAMES[name]}" if name in CONNECTS_NAMES else ""
