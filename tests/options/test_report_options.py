"""The option `report.topic`."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options


def options(**more: str) -> SinkOptions:
    given = {name.replace("__", "."): value for name, value in more.items()}
    return sink_options({"kafka.bootstrap.servers": "h:1", "topic": "events", **given})


def test_there_are_no_reports_unless_a_topic_is_named() -> None:
    assert (options().report_topic, options(report__topic="reports").report_topic) == (None, "reports")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"report.topic": "no topic"}, "option report.topic: 'no topic' is not a valid topic name"),
        ({"report.topic": "events"}, "option report.topic: events is also the topic of the option topic; name another topic"),
        (
            {"report.topic": "letters", "on.error": "dead-letter", "dead.letter.topic": "letters"},
            "option report.topic: letters is also the topic of dead letters",
        ),
        (
            {"report.topic": "log", "delivery.guarantee": "exactly-once", "commit.log.topic": "log"},
            "option report.topic: log is also the topic of the commit log",
        ),
    ],
)
def test_a_topic_that_has_another_use_is_refused(more: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(**more)
    assert caught.value.message.startswith(text)
    assert caught.value.facts["option"] == "report.topic"
