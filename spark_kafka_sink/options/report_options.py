"""The option `report.topic`: where a record about each committed micro-batch or batch job goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import SinkOption, topic_name

REPORT_TOPIC: Final = "report.topic"

REPORT_OPTIONS: Final = (
    SinkOption(
        REPORT_TOPIC,
        "a topic name",
        "",
        "The topic that gets a [record of JSON](reports.md) about each committed micro-batch or batch job, with the query's id as"
        " its key. Under exactly-once it is committed right after the rows. If it cannot be written, rows are delivered without"
        " it, and one warning says so.",
        "Spark's sink has no such option.",
    ),
)


def report_topic(options: Mapping[str, object], others: Mapping[str, str | None]) -> str | None:
    """Returns the topic of reports; None without one.

    Args:
        options: by lower-cased name.
        others: the topics that have another use, by what that is.

    Raises:
        OptionError: the value is not valid, or the topic has another use.
    """
    if REPORT_TOPIC not in options:
        return None
    topic = topic_name(REPORT_TOPIC, options[REPORT_TOPIC])
    for use, other in others.items():
        if topic == other:
            raise OptionError(
                f"option {REPORT_TOPIC}: {topic} is also the topic of {use}; name another topic", option=REPORT_TOPIC
            )
    return topic
