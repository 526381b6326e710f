"""The lines of a log: what each has, and that a program can take them apart."""

from __future__ import annotations

import io
import logging
import re
import shlex

import pytest

from spark_kafka_sink.cli.run_broker import KeyValueFormatter, log_to


def record(message: str = "Created topic %s", *arguments: object, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("spark_kafka_sink.broker.x", logging.INFO, __file__, 1, message, arguments or ("events",), None)
    made.created = 1_700_000_000.123
    made.threadName = "main"
    made.__dict__.update(facts)
    return made


def test_text_is_pairs_that_a_shell_could_take_apart() -> None:
    line = KeyValueFormatter().format(record(topic="a=b", empty="", plain=3, lines="a\nb"))

    assert line == (
        "time=2023-11-14T22:13:20.123Z level=INFO logger=broker.x thread=main "
        'message="Created topic events" topic="a=b" empty="" plain=3 lines="a\\nb"'
    )
    assert shlex.split(line)[4:6] == ["message=Created topic events", "topic=a=b"]


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    made = record("Refused %s", 'a\n"b"\x1b[31m')
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    line = KeyValueFormatter().format(made)

    assert len(line.splitlines()) == 1
    assert "ValueError: two\\nlines" in line
    assert line.isprintable()


@pytest.mark.parametrize(("verbose", "levels"), [(False, ["INFO", "WARNING"]), (True, ["DEBUG", "INFO", "WARNING"])])
def test_the_package_is_logged_and_of_others_what_they_warn_of(*, verbose: bool, levels: list[str]) -> None:
    logging.getLogger().handlers[:] = []
    stream = io.StringIO()
    log_to(stream, verbose=verbose)
    logging.getLogger("spark_kafka_sink.x").debug("one")
    logging.getLogger("spark_kafka_sink.x").info("two")
    logging.getLogger("others").info("three")
    logging.getLogger("others").warning("four")

    assert re.findall(r"level=(\w+)", stream.getvalue()) == levels
