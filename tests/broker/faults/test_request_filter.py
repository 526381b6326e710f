"""Single topics and partitions, taken out of requests and put into answers, for every API that has them."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.broker.faults.effects import failed_answer
from spark_kafka_sink.broker.faults.request_filter import SHAPES, asks_for, merged, name_or_id, split
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from spark_kafka_sink.protocol.apis.partition_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from spark_kafka_sink.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.apis.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from spark_kafka_sink.protocol.apis.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.broker.requests import request
from tests.every import every

NAMES = ("a", "b")
OLD = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 11, ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.OFFSET_COMMIT: 8}
"""Versions in which topics have names and answers their partitions; the newest where nothing is said."""


def _each(topic: Any, partition: Any) -> Any:
    """Both topics, with partitions 0 and 1 each."""
    return tuple(topic(name, tuple(partition(index) for index in (0, 1))) for name in NAMES)


REQUESTS: dict[ApiKey, Message] = {
    ApiKey.PRODUCE: ProduceRequest(
        topic_data=_each(
            lambda name, parts: TopicProduceData(name, partition_data=parts), lambda index: PartitionProduceData(index, None)
        )
    ),
    ApiKey.FETCH: FetchRequest(topics=_each(lambda name, parts: FetchTopic(name, partitions=parts), FetchPartition)),
    ApiKey.LIST_OFFSETS: ListOffsetsRequest(
        -1, 0, _each(ListOffsetsTopic, lambda index: ListOffsetsPartition(index, timestamp=-1))
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest(
        topics=_each(OffsetForLeaderTopic, lambda index: OffsetForLeaderPartition(index, leader_epoch=0))
    ),
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest(_each(DeleteRecordsTopic, lambda index: DeleteRecordsPartition(index, 0)), 1_000),
    ApiKey.OFFSET_COMMIT: OffsetCommitRequest(
        "group",
        topics=_each(
            lambda name, parts: OffsetCommitRequestTopic(name, partitions=parts),
            lambda index: OffsetCommitRequestPartition(index, 0),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitRequest(
        "id", "group", 0, 0, topics=_each(TxnOffsetCommitRequestTopic, lambda index: TxnOffsetCommitRequestPartition(index, 0))
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnRequest(
        v3_and_below_topics=tuple(AddPartitionsToTxnTopic(name, (0, 1)) for name in NAMES)
    ),
    ApiKey.CREATE_TOPICS: CreateTopicsRequest(tuple(CreatableTopic(name, 1, 1) for name in NAMES), 1_000),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(tuple(CreatePartitionsTopic(name, 2, None) for name in NAMES), 1_000),
}


def codes(key: ApiKey, answer: Any) -> dict[tuple[Any, ...], int]:
    """By topic, and partition where the API has them."""
    shape = SHAPES[key]
    found: dict[tuple[Any, ...], int] = {}
    for topic in getattr(answer, shape.answered_topics):
        if shape.answered_partitions is None:
            found[(name_or_id(topic),)] = topic.error_code
            continue
        for part in getattr(topic, shape.answered_partitions):
            code = part.partition_error_code if hasattr(part, "partition_error_code") else part.error_code
            found[name_or_id(topic), getattr(part, shape.answered_index)] = code
    return found


def of_b(topic: object, partition: int | None) -> bool:
    """Partition 1 of topic b."""
    return name_or_id(topic) == "b" and partition in (1, None)


def failed(key: ApiKey, asked: Message, code: ErrorCode) -> Message:
    answer = failed_answer(request(asked, key, OLD.get(key)), asked, code, None)
    assert answer is not None
    return answer


def test_every_shape_is_tried() -> None:
    assert {*SHAPES} - {*REQUESTS} == {ApiKey.METADATA}  # which is answered otherwise


@every("key", REQUESTS)
def test_a_part_is_taken_out_and_its_error_put_in(key: ApiKey) -> None:
    body = REQUESTS[key]
    assert asks_for(key, body, of_b)
    matched, rest = split(key, body, of_b)
    assert rest is not None
    answer = merged(key, failed(key, rest, ErrorCode.NONE), failed(key, matched, ErrorCode.INVALID_REQUEST))

    part = ("b",) if SHAPES[key].partitions is None else ("b", 1)
    others = [(name,) for name in NAMES] if len(part) == 1 else [(name, index) for name in NAMES for index in (0, 1)]
    assert codes(key, answer) == dict.fromkeys(others, 0) | {part: ErrorCode.INVALID_REQUEST}


@every("key", REQUESTS)
def test_an_error_takes_the_place_of_what_was_answered(key: ApiKey) -> None:
    body = REQUESTS[key]
    matched, _ = split(key, body, of_b)
    answer = merged(key, failed(key, body, ErrorCode.NONE), failed(key, matched, ErrorCode.INVALID_REQUEST))

    assert sorted(codes(key, answer).values()) == [0] * (len(codes(key, answer)) - 1) + [ErrorCode.INVALID_REQUEST]


@every("key", REQUESTS)
def test_where_all_is_wanted_nothing_is_left(key: ApiKey) -> None:
    assert split(key, REQUESTS[key], lambda topic, partition: True) == (REQUESTS[key], None)
    assert not asks_for(key, REQUESTS[key], lambda topic, partition: name_or_id(topic) == "c")
