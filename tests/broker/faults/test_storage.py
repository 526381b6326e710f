"""Full disks, transaction markers that come late, and coordinators that move."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest
from spark_kafka_sink.protocol.apis.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.faults.asking import connected, end_offset, produced
from tests.broker.network.client import Client
from tests.waiting import wait_until

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_disk_refuses_appends_until_there_is_room(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    with broker.faults.disk_full() as full:
        assert produced(client, topic, 0, 1) == {0: STORAGE_ERROR, 1: STORAGE_ERROR}
        assert full.hits == 2

    assert produced(client, topic, 0, 1) == {0: 0, 1: 0}
    assert end_offset(client, topic) == 1


def test_a_disk_is_that_of_a_broker_or_of_a_topic(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    other = broker.create_topic(f"{topic}-other")
    broker.move_leader(other, 0, 1)
    with broker.faults.disk_full(topic=other), broker.faults.disk_full(broker=2):
        assert (produced(client, topic, 0), produced(client, other, 0)) == ({0: 0}, {0: STORAGE_ERROR})
        broker.move_leader(topic, 0, 2)
        with connected(broker, 2) as second:
            assert produced(second, topic, 0) == {0: STORAGE_ERROR}
    with pytest.raises(OptionError, match="there is no broker 5"):
        broker.faults.disk_full(broker=5)


class Transactions:
    """The requests of a transactional producer, over a connection of its own."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1

    def begin(self) -> int:
        answer = self.client.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(self.transactional_id, 60_000))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch  # type: ignore[attr-defined]
        return int(answer.error_code)  # type: ignore[attr-defined]

    def add(self, topic: str) -> int:
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(topic, (0,)),),
        )
        answer = self.client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
        (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition  # type: ignore[attr-defined]
        return int(result.partition_error_code)

    def commit(self) -> int:
        body = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, True)
        answer = self.client.ask(ApiKey.END_TXN, 4, body)
        return int(answer.error_code)  # type: ignore[attr-defined]


@contextmanager
def transactions(broker: EmbeddedBroker, transactional_id: str) -> Iterator[Transactions]:
    with connected(broker, broker.coordinator("transaction", transactional_id)) as client:
        yield Transactions(client, transactional_id)


def test_held_markers_keep_a_producer_from_its_next_transaction(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    with transactions(broker, topic) as producer:
        assert (producer.begin(), producer.add(topic)) == (0, 0)
        with broker.faults.hold_markers() as held:
            assert producer.commit() == 0
            held.wait()
            assert producer.add(topic) == ErrorCode.CONCURRENT_TRANSACTIONS
            assert end_offset(client, topic) == 0
        wait_until(lambda: producer.add(topic) == 0)

        assert end_offset(client, topic) == 1  # the marker


def test_delayed_markers_come_by_themselves(broker: EmbeddedBroker, topic: str) -> None:
    with transactions(broker, topic) as producer:
        assert (producer.begin(), producer.add(topic)) == (0, 0)
        with broker.faults.delay_markers(300):
            begun = time.monotonic()
            assert producer.commit() == 0
            wait_until(lambda: producer.add(topic) == 0)
            assert time.monotonic() - begun >= 0.3


def test_markers_come_at_once_when_nothing_delays_them_any_more(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.delay_markers(3_600_000).remove()
    with transactions(broker, topic) as producer:
        assert (producer.begin(), producer.add(topic), producer.commit()) == (0, 0, 0)
        wait_until(lambda: producer.add(topic) == 0)


def test_a_coordinator_moves(broker: EmbeddedBroker, topic: str) -> None:
    for kind in ("group", "transaction"):
        before = broker.coordinator(kind, topic)
        broker.move_coordinator(kind, topic, 3 - before)
        assert broker.coordinator(kind, topic) == 3 - before
    with transactions(broker, topic) as there, connected(broker, 3 - broker.coordinator("transaction", topic)) as elsewhere:
        assert there.begin() == 0
        assert Transactions(elsewhere, topic).begin() == ErrorCode.NOT_COORDINATOR
    with pytest.raises(OptionError, match="kind 'topic' is not valid: it must be 'group' or 'transaction'"):
        broker.move_coordinator("topic", topic, 1)  # type: ignore[arg-type]


def test_a_client_that_is_not_ours_gets_over_it(broker: EmbeddedBroker, topic: str) -> None:
    """Every record once, with lost answers, cuts, moves and a full disk on the way."""
    faults = broker.faults
    faults.fail(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, applied=True, topic=topic)
    faults.cut_after(ApiKey.PRODUCE, topic=topic)
    faults.truncate(ApiKey.METADATA)
    hit = faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic, times=2)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    failed: list[KafkaError] = []
    for index in range(20):
        producer.produce(topic, str(index), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
        if index == 10:
            broker.move_leader(topic, 0, 2)
    assert producer.flush(60) == 0

    assert (failed, hit.hits) == ([], 2)
    assert _read(broker, topic, 20) == [str(index).encode() for index in range(20)]


def _read(broker: EmbeddedBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        got = consumer.consume(count, timeout=60)
        for message in got:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        assert end == count
        return [value for message in got if (value := message.value()) is not None]
    finally:
        consumer.close()
