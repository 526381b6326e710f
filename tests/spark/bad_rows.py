"""Rows of which some are bad, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.task import run_task
from tests.exactly_once.opened import client_of, soon
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic
from tests.spark.frames import options

PREFIX = "__connect.errors."
SCHEMA = SinkSchema(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BASE_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # Kafka would delete rows of 2023 by their timestamps within minutes
LIMITED = {"message.timestamp.after.max.ms": "3600000", **KEPT}


class Given(NamedTuple):
    """A row of every column. Without a change it is good."""

    number: int
    topic: str | None
    value: str | None = "v"
    partition: int | None = None
    timestamp_ms: int | None = BASE_MS
    headers: Sequence[tuple[str | None, bytes | None] | None] | None = (("name", b"1"),)


def batch_of(rows: Iterable[Given]) -> pa.RecordBatch:
    rows = list(rows)
    headers = [
        None
        if row.headers is None
        else [None if each is None else dict(zip(("key", "value"), each, strict=True)) for each in row.headers]
        for row in rows
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.value for row in rows], pa.string()),
            pa.array([str(row.number) for row in rows], pa.string()),
            pa.array(headers, HEADERS),
            pa.array([row.topic for row in rows], pa.string()),
            pa.array([row.partition for row in rows], pa.int32()),
            pa.array(
                [None if row.timestamp_ms is None else row.timestamp_ms * 1000 for row in rows], pa.timestamp("us", tz="UTC")
            ),
        ],
        names=["value", "key", "headers", "topic", "partition", "timestamp"],
    )


def one_of_each(topic: str) -> tuple[list[Given], dict[int, str]]:
    """Rows of which every third is bad in its own way, and the reason of each bad row."""
    bad = {
        "topic": Given(1, None),
        "topic ": Given(4, "no topic"),
        "partition": Given(7, topic, partition=-2),
        "partition ": Given(10, topic, partition=77),
        "timestamp": Given(13, topic, timestamp_ms=-5),
        "header": Given(16, topic, headers=(("ok", b"2"), None)),
        "header ": Given(19, topic, headers=((None, b"2"),)),
        "too-large": Given(22, topic, value="x" * 30_000),
        "INVALID_TIMESTAMP": Given(25, topic, timestamp_ms=BASE_MS * 3),
    }
    rows = {each.number: each for each in bad.values()}
    return [rows.get(number, Given(number, topic)) for number in range(27)], {
        row.number: name.strip() for name, row in bad.items()
    }


def why(record: Witnessed) -> dict[str, str]:
    found = {name.removeprefix(PREFIX): value for name, value in record.headers if name.startswith(PREFIX)}
    return {name: (value or b"").decode() for name, value in found.items()}


def keys(kafka: Kafka, topic: str, **how: Any) -> list[int]:
    return keys_of(kafka.bootstrap_servers, topic, **how)


def keys_of(servers: str, topic: str, **how: Any) -> list[int]:
    return sorted(int(each.key or b"-1") for each in read_topic(servers, topic, **how))


def tolerant(kafka: Kafka, letters: str, **more: str) -> SinkOptions:
    named = {"on__error": "dead-letter", "dead__letter__topic": letters, "kafka__max__request__size": "20000", **more}
    return sink_options(options(kafka, **named))


def delivered(options: SinkOptions, *batches: Any, batch: MicroBatch | None = None) -> DeliveryReport:
    return run_task(batches, options, Feed(), batch)[0]


def end(settings: SinkOptions, share: TaskTransaction, *, commit: bool) -> None:
    assert share.transaction is not None
    with client_of(settings.producer.bootstrap_servers[0]) as client:
        (ended,) = TransactionClient(client).end([share.transaction.handle], commit, soon()).values()
    assert ended.error == ""
