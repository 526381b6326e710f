"""The options for bad rows: values, and what contradicts what."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.error_options import CONNECTS_NAMES, CONNECTS_PREFIX, FAIL, ErrorOptions, OnError
from spark_kafka_sink.options.sink_options import sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
LETTERS = {"on.error": "dead-letter", "dead.letter.topic": "letters"}


def read(**options: object) -> ErrorOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return sink_options({**SERVERS, "topic": "events", **named}).errors


def refused(**options: object) -> str:
    with pytest.raises(OptionError) as caught:
        read(**options)
    return caught.value.message


def test_a_bad_row_fails_its_task_by_default() -> None:
    assert read() == FAIL
    assert not read().tolerates


def test_options_are_read() -> None:
    found = read(
        on__error="dead-letter",
        dead__letter__topic="letters",
        dead__letter__header__prefix="why.",
        on__error__max__rows="10",
        on__error__max__fraction="0.25",
    )
    assert found == ErrorOptions(OnError.DEAD_LETTER, "letters", "why.", 10, 0.25)
    assert found.tolerates
    assert read(on__error="DROP", on__error__max__rows=0) == ErrorOptions(OnError.DROP, max_rows=0)
    assert read(**LETTERS).header_prefix == CONNECTS_PREFIX


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"on.error": "ignore"}, "option on.error: 'ignore' is not one of fail, dead-letter, drop"),
        ({"on.error": "dead-letter"}, "option dead.letter.topic: is required with on.error=dead-letter"),
        ({"dead.letter.topic": "letters"}, "option dead.letter.topic: requires on.error=dead-letter, but on.error is fail"),
        ({"on.error": "drop", "dead.letter.topic": "letters"}, "option dead.letter.topic: requires on.error=dead-letter, but"),
        ({"on.error": "drop", "dead.letter.header.prefix": "x"}, "option dead.letter.header.prefix: requires"),
        ({**LETTERS, "dead.letter.topic": "no topic"}, "option dead.letter.topic: 'no topic' is not a valid topic name"),
        ({**LETTERS, "dead.letter.topic": "events"}, "option dead.letter.topic: events is also the topic of the option topic"),
        ({**LETTERS, "dead.letter.header.prefix": " "}, "option dead.letter.header.prefix: ' ' is not text"),
        ({"on.error.max.rows": "1"}, "option on.error.max.rows: requires on.error=dead-letter or on.error=drop, but"),
        ({"on.error.max.fraction": "0.1"}, "option on.error.max.fraction: requires on.error=dead-letter or"),
        ({"on.error": "drop", "on.error.max.rows": "-1"}, "option on.error.max.rows: '-1' is not a whole number"),
        *(
            ({"on.error": "drop", "on.error.max.fraction": value}, f"option on.error.max.fraction: {value!r} is not a number")
            for value in ("0", "1.1", "-0.1", "nan", "some")
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], problem: str) -> None:
    assert refused(**options).startswith(problem)


def test_the_commit_log_is_no_dead_letter_topic() -> None:
    options = {**LETTERS, "delivery.guarantee": "exactly-once", "commit.log.topic": "letters"}
    assert refused(**options).startswith("option dead.letter.topic: letters is also the topic of the commit log")


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize("name", CONNECTS_NAMES)
def test_an_option_of_kafka_connect_names_ours(prefix: str, name: str) -> None:
    assert refused(**{prefix + name: "all"}) == f"unknown option {prefix}{name}; {CONNECTS_NAMES[name]}"
