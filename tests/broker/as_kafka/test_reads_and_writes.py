"""The same requests to write, read and look up records to Kafka 4.1 and to the embedded broker: the same answers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.partition_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from spark_kafka_sink.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.broker.as_kafka.pair import Pair, eventually
from tests.every import every
from tests.kafka.fixtures import only_real_kafka
from tests.tiers import whole_but

pytestmark = only_real_kafka  # it is what the embedded broker is compared with

NOW = 1_700_000_000_000

OLDER = "an older version differs by its fields, which tests/protocol compares with Java's"


def batch(*timestamps: int, **fields: Any) -> bytes:
    return small_batch([NewRecord(b"k", b"v%d" % i, timestamp) for i, timestamp in enumerate(timestamps)], **fields)


def written(topic: str, records: bytes | None, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = None if records is None else (records,)
    return ProduceRequest(None, acks, 5_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, data)])])


def without_words(answer: Any) -> str:
    return re.sub(r"error_message=(None|'[^']*')", "", without_times(answer))


def without_times(answer: Any) -> str:
    return re.sub(r"log_append_time_ms=\d+", "", str(answer))


def asked(topic: str, timestamp: int, isolation: int, epoch: int, partition: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, epoch, timestamp)])])


TIMESTAMPS = (-1, -2, -3, -4, -5, -6, 0, NOW, NOW + 5, NOW + 50, 2**63 - 1)
PLACES = ((-1, 0), (0, 0), (1, 0), (-1, 1), (-1, 9))
"""Epochs and partitions."""


@pytest.mark.parametrize("version", whole_but([4, 9, 10], {10}, OLDER))
def test_offsets(both: Pair, version: int) -> None:
    def look() -> None:
        for timestamp, isolation, place in itertools.product(TIMESTAMPS, (0, 1), PLACES):
            both.ask(ApiKey.LIST_OFFSETS, version, asked(both.t, timestamp, isolation, *place))

    look()
    both.ask(ApiKey.PRODUCE, 9, written(both.t, batch(NOW, NOW + 20, NOW + 10)), without_times)
    both.ask(ApiKey.PRODUCE, 9, written(both.t, batch(NOW + 5)), without_times)
    look()


def _changed(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda good: good[:at] + value + good[at + len(value) :]


BAD = {
    "magic 0": _changed(16, b"\0"),
    "magic 1": _changed(16, b"\1"),
    "magic 3": _changed(16, b"\3"),
    "crc": _changed(17, b"\1\2\3\4"),
    "a length of 0": _changed(8, b"\0\0\0\0"),
    "a negative length": _changed(8, b"\xff\xff\xff\xff"),
    "a length behind its end": _changed(8, b"\0\0\xff\0"),
    "nothing": lambda good: b"",
    "half of it": lambda good: good[: len(good) // 2],
    "ten bytes": lambda good: good[:10],
    "two batches": lambda good: good + good,
    "bytes behind it": lambda good: good + b"\0" * 30,
    "a few bytes behind it": lambda good: good + b"\0" * 3,
    "another base offset": _changed(0, (5).to_bytes(8, "big")),
    "another leader epoch": _changed(12, (5).to_bytes(4, "big")),
}


UNREADABLE = ("a length of 0", "a negative length", "magic 3")
"""For them Kafka answers before it looks at the single partitions, and in words."""


@pytest.mark.parametrize("version", whole_but([3, 9, 11], {11}, OLDER))
@every("bad", BAD)
def test_records_that_are_none(both: Pair, bad: str, version: int) -> None:
    records = BAD[bad](batch(NOW, NOW + 1))
    both.ask(ApiKey.PRODUCE, version, written(both.t, records), without_words if bad in UNREADABLE else without_times)
    both.ask(ApiKey.PRODUCE, version, written(both.t, batch(NOW)), without_times)


@pytest.mark.parametrize("version", whole_but([3, 9, 11], {11}, OLDER))
@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 7},
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "control": True},
    ],
    ids=str,
)
def test_producers(both: Pair, fields: dict[str, Any], version: int) -> None:
    for _ in range(2):
        both.ask(ApiKey.PRODUCE, version, written(both.t, batch(NOW, **fields)), without_times)


@every("acks", [-1, 1, 2, -2])
@pytest.mark.parametrize("version", whole_but([3, 9, 11], {11}, OLDER))
def test_where_it_is_written(both: Pair, acks: int, version: int) -> None:
    both.coordinate_groups()
    for topic, partition in ((both.t, 0), (both.t, 9), (both.t, -1), (both.missing, 0), ("__consumer_offsets", 0), ("a b", 0)):
        both.ask(ApiKey.PRODUCE, version, written(topic, batch(NOW), acks, partition), without_times)


def fetching(topic: str, partition: int = 0, offset: int = 0, **fields: Any) -> FetchRequest:
    each = {name: fields.pop(name) for name in ("current_leader_epoch", "partition_max_bytes") if name in fields}
    known = {"current_leader_epoch": -1, "partition_max_bytes": 1000, **each}
    parts = [FetchPartition(partition, fetch_offset=offset, **known)]
    return FetchRequest(**{"max_wait_ms": 10, "min_bytes": 1, "topics": [FetchTopic(topic, partitions=parts)], **fields})


def read(answer: Any) -> Any:
    def records(partition: Any) -> bytes:
        return b"".join(map(bytes, partition.records or ()))

    parts = [
        (
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            part.aborted_transactions,
            part.current_leader,
            records(part),
        )
        for topic in answer.responses
        for part in topic.partitions
    ]
    return answer.error_code, answer.throttle_time_ms, answer.node_endpoints, parts


ASKED: dict[str, list[Any]] = {
    "offset": [0, 1, 2, 3, 4, -1],
    "partition": [9, -1],
    "current_leader_epoch": [0, 7],
    "partition_max_bytes": [0, 80, 130],
    "max_bytes": [0, 130],
    "min_bytes": [0, -1, 10_000],
    "max_wait_ms": [0, -1],
    "isolation_level": [1],
    "topics": [[]],
}
FIELDS = [{name: value} for name, values in ASKED.items() for value in values]


@pytest.mark.parametrize("version", whole_but([4, 11, 12], {12}, OLDER))
def test_fetches(both: Pair, version: int) -> None:
    def same(asked: FetchRequest) -> bool:
        return bool(both.ask(ApiKey.FETCH, version, asked, read))

    def look(topic: str) -> None:
        for fields in FIELDS:
            eventually(partial(same, fetching(topic, **fields)))

    look(both.t)
    for _ in range(3):
        both.ask(ApiKey.PRODUCE, 9, written(both.t, batch(NOW)), without_times)
    look(both.t)
    look(both.missing)
