"""Each partition's batch goes into its log, or is refused for a reason of its own."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.produce import handle_produce
from spark_kafka_sink.broker.log.log_types import IsolationLevel
from spark_kafka_sink.broker.network.request import ResponseAction
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.small_batches import decode_batches
from tests.broker.rig import Asked, Rig, batch

NAMED, BY_ID = 12, 13


def produce(rig: Rig, *batches: bytes, topic: str = "t", broker: int = 1, **fields: Any) -> Asked:
    """One batch for each partition from 0 on."""
    data = [PartitionProduceData(number, [each] if each else None) for number, each in enumerate(batches)]
    body = ProduceRequest(topic_data=[TopicProduceData(topic, partition_data=data)], **fields)
    return rig.ask(handle_produce, body, ApiKey.PRODUCE, NAMED, broker=broker)


def partition(asked: Asked, number: int = 0) -> Any:
    return asked.answer.responses[0].partition_responses[number]


def stored(rig: Rig, number: int = 0) -> list[bytes | None]:
    read = rig.log("t", number).read(0, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
    return [record.value for each in decode_batches(b"".join(read.records)) for record in each.records()]


def test_batches_are_stored_and_told_their_offsets() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 2)
        produce(rig, batch(b"a"), batch(b"b"))

        asked = produce(rig, batch(b"c", b"d"))

        assert (partition(asked).error_code, partition(asked).base_offset, partition(asked).log_start_offset) == (0, 1, 0)
        assert (stored(rig, 0), stored(rig, 1)) == ([b"a", b"c", b"d"], [b"b"])


def test_a_broker_that_does_not_lead_says_who_does_and_where() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])

        asked = produce(rig, batch(b"a"), broker=2)

        assert partition(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (partition(asked).current_leader.leader_id, partition(asked).current_leader.leader_epoch) == (1, 0)
        assert [(node.node_id, node.port) for node in asked.answer.node_endpoints] == [(1, 9001)]
        assert stored(rig) == []


def test_topics_go_by_id_from_version_13_on() -> None:
    with Rig() as rig:
        topic = rig.cluster.create_topic("t")
        data = [
            TopicProduceData(topic_id=each, partition_data=[PartitionProduceData(0, [batch(b"a")])])
            for each in (topic.topic_id, uuid.uuid4())
        ]

        answer = rig.ask(handle_produce, ProduceRequest(topic_data=data), ApiKey.PRODUCE, BY_ID).answer

        codes = [each.partition_responses[0].error_code for each in answer.responses]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
        assert stored(rig) == [b"a"]


@pytest.mark.parametrize(("topic", "action"), [("t", ResponseAction.NO_OP), ("other", ResponseAction.CLOSE_CONNECTION)])
def test_without_acks_there_is_no_answer_and_a_failure_closes_the_connection(topic: str, action: ResponseAction) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        asked = produce(rig, batch(b"a"), topic=topic, acks=0)
        assert asked.action is action
        assert stored(rig) == ([b"a"] if topic == "t" else [])


def test_too_few_replicas_in_sync_refuse_acks_all_only() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1, 2])], configs={"min.insync.replicas": "2"})
        rig.cluster.broker_down(2)

        codes = [partition(produce(rig, batch(b"a"), acks=acks)).error_code for acks in (-1, 1)]

        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
