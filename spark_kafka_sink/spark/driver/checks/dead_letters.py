"""Checks of the dead-letter topic: existence, leaders, the size of letters, and the right to write to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from spark_kafka_sink.client.topics import TOPIC, configs_of, metadata_error
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.options.error_options import DEAD_LETTER_TOPIC
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.driver.checks.context import CheckContext
from spark_kafka_sink.spark.driver.checks.report import CheckLine, failed, failed_by, ok
from spark_kafka_sink.spark.driver.checks.topic import WRITE, described_topic, may_on_topic, missing

DEAD_LETTERS: Final = "dead letters"


def check_dead_letters(context: CheckContext) -> Iterator[CheckLine]:
    """Checks the topic of the option `dead.letter.topic`."""
    name = context.options.errors.topic
    if name is None:
        return
    found = described_topic(context, name)
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        yield replace(missing(context, name, DEAD_LETTER_TOPIC), name=DEAD_LETTERS)
        return
    if found.error_code:
        yield failed_by(DEAD_LETTERS, metadata_error(context.client, name, found.error_code))
        return
    leaderless = sum(each.leader_id < 0 for each in found.partitions)
    if leaderless:
        text = f"topic {name!r}: {counted(leaderless, 'partition')} of {len(found.partitions):,} without a leader"
        yield failed(
            DEAD_LETTERS, text, "start the brokers that hold their replicas; letters for these partitions wait until then"
        )
    else:
        yield ok(DEAD_LETTERS, f"topic {name!r} has {counted(len(found.partitions), 'partition')}", _hint(context, name))
    yield may_on_topic(context, found, {"Write": WRITE})


def _hint(context: CheckContext, name: str) -> str:
    """Returns a hint if letters may be larger than the topic takes, or if the topic needs keys; otherwise an empty string."""
    try:
        configs = configs_of(context.client, TOPIC, name, context.soon(), node_id=context.node_id)
        largest = int(configs["max.message.bytes"].value or 0)
        policy = configs["cleanup.policy"].value or ""
    except (KafkaSinkError, KeyError, ValueError):
        return ""
    if "compact" in policy:
        return "the topic is compacted: brokers reject letters without a key, and later letters replace those with the same key"
    limit = context.options.producer.max_request_size
    if largest < limit:
        return (
            f"letters over max.message.bytes={largest:,} lose their value; rows may have {limit:,} bytes (kafka.max.request.size)"
        )
    return ""
