"""Leaders of a three-broker Kafka die by SIGKILL while records flow: none is lost, none is there twice, none out of order."""

from __future__ import annotations

import pytest

from tests.faults.producing import NumberedStream, assert_each_once_in_order, numbers, producer_on
from tests.kafka.brokers import Brokers
from tests.kafka.dump_log import dump_log, records_of
from tests.kafka.fixtures import NewTopic, embedded_in_make_test
from tests.kafka.witness import read_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 2


@pytest.mark.fault("sequence", "leader killed with five in flight")
@pytest.mark.fault("metadata", "NOT_LEADER without it")
@embedded_in_make_test("40 s; the test after it has real Kafka's leader killed")
def test_leaders_killed_one_after_another_mid_stream(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS, on=kafka3)
    # An append makes five batches or more for its partition: that many are in flight. Of few records, as each is read back twice.
    producer = producer_on(kafka3.bootstrap_servers, batch_size=500, request_timeout_ms=5000, retry_backoff_max_ms=100)
    with producer, NumberedStream(producer, topic, PARTITIONS, rows=30, width=80) as stream:
        for partition in (0, 1):
            stream.wait_for_more(1000)
            leader = kafka3.leader(topic, partition)
            kafka3.kill(leader)
            stream.wait_for_more(1000)
            kafka3.restart(leader)
    kafka3.heal()
    assert stream.report.retries, f"the kills met no traffic: {stream.report}"
    for partition in range(PARTITIONS):
        batches = dump_log(kafka3, kafka3.leader(topic, partition), topic, partition)
        assert all(batch.valid for batch in batches)
        assert_each_once_in_order([int(record.value or b"") for record in records_of(batches)], stream.sent)
        found = stream.report.partitions[topic, partition]
        assert (found.records, found.first_offset, found.last_offset) == (stream.sent, 0, stream.sent - 1)
    read = read_topic(kafka3.direct_servers, topic)
    assert len(read) == stream.sent * PARTITIONS == stream.report.records


def test_offsets_in_the_report_are_where_the_records_are(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=kafka3)
    offsets: list[tuple[int, int, int]] = []
    with producer_on(kafka3.bootstrap_servers, batch_size=500, request_timeout_ms=5000) as producer:
        leader = kafka3.leader(topic)
        for scope_number in range(20):
            with producer.scope() as scope:
                scope.append(topic, numbers([scope_number] * 200))
                if scope_number == 5:
                    kafka3.kill(leader)
                scope.flush(60)
                found = scope.report().partitions[topic, 0]
                offsets.append((found.records, found.first_offset, found.last_offset))
    assert offsets == [(200, 200 * n, 200 * n + 199) for n in range(20)]
    read = [(record.offset, int(record.value or b"")) for record in read_topic(kafka3.direct_servers, topic)]
    assert read == [(offset, offset // 200) for offset in range(4000)]


@pytest.mark.fault("error codes", "2, 7, 19, 20, 89: retried")
@pytest.mark.whole("20 s")
def test_too_few_replicas_hold_records_back_until_they_are_there_again(kafka3: Brokers, new_topic: NewTopic) -> None:
    """With a follower dead nothing may be acked; some of it was stored by the leader nevertheless, and must not be twice."""
    topic = new_topic(1, on=kafka3, replication=3, config={"min.insync.replicas": "3"})
    follower = next(node for node in kafka3.broker_ids if node != kafka3.leader(topic))
    producer = producer_on(kafka3.bootstrap_servers, request_timeout_ms=5000, delivery_timeout_ms=90_000)
    with producer, producer.scope() as scope:
        scope.append(topic, numbers([0]))
        scope.flush(30)
        kafka3.kill(follower)
        scope.append(topic, numbers([1]))
        wait_until(lambda: any("NOT_ENOUGH_REPLICAS" in name for name in scope.report().errors), "the refusal")
        assert scope.report().records == 1
        kafka3.restart(follower)
        scope.flush(60)
        assert scope.report().records == 2
    assert [int(record.value or b"") for record in read_topic(kafka3.direct_servers, topic)] == [0, 1]
