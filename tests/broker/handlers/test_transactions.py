"""Who has lately written to a partition."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.broker.handlers.transactions import handle_describe_producers
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.transactions import DescribeProducersRequest, TopicRequest
from tests.broker.rig import Rig, batch


def described(rig: Rig, topic: str, *partitions: int, broker: int = 1) -> Any:
    body = DescribeProducersRequest([TopicRequest(topic, partitions)])
    (found,) = rig.ask(handle_describe_producers, body, ApiKey.DESCRIBE_PRODUCERS, broker=broker).answer.topics
    assert found.name == topic
    return found.partitions


def test_each_with_its_epoch_and_last_sequence() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 2)
        rig.log("t").append_as_leader(batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0), 0)
        rig.log("t").append_as_leader(batch(b"no producer"), 0)
        first, second = described(rig, "t", 0, 1)

        assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in first.active_producers] == [(7, 3, 1)]
        assert first.active_producers[0].current_txn_start_offset == -1
        assert (second.error_code, second.active_producers) == (ErrorCode.NONE, ())


def test_where_a_transaction_began() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        log = rig.log("t")
        log.append_as_leader(batch(b"before"), 0)
        guard = log.maybe_start_transaction_verification(7, 0, 3, supports_epoch_bump=True)
        sent = batch(b"a", producer_id=7, producer_epoch=3, base_sequence=0, transactional=True)
        log.append_as_leader(sent, 0, guard=guard)

        assert described(rig, "t", 0)[0].active_producers[0].current_txn_start_offset == 1


def test_what_is_not_there() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])
        (unknown,), (illegal,), (missing,) = described(rig, "none", 0), described(rig, "a b", 0), described(rig, "t", 5)
        (elsewhere,) = described(rig, "t", 0, broker=2)

        assert [each.error_code for each in (unknown, illegal, missing, elsewhere)] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
        assert unknown.error_message == "This server does not host this topic-partition."
