"""Batches that real Kafka refuses or that come too late, amid others in flight: only they are missing from the log."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import DeliveryError
from spark_kafka_sink.producer.accumulator.sequences import PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, figure, numbers, one_by_one
from tests.kafka.dump_log import DumpedBatch, dump_log, records_of
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import wait_until


def check_numbers(batches: list[DumpedBatch]) -> None:
    """In each epoch the sequence numbers begin with 0 and leave none out; epochs only rise."""
    assert [batch.producer_epoch for batch in batches] == sorted(batch.producer_epoch for batch in batches)
    for _, epoch in itertools.groupby(batches, key=lambda batch: batch.producer_epoch):
        due = 0
        for batch in epoch:
            assert batch.base_sequence == due
            due = batch.last_sequence + 1


@pytest.mark.fault("sequence", "the first of five fails for good")
def test_one_that_is_too_large_fails_alone_with_four_in_flight_behind_it(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    cluster = proxied_kafka.cluster
    topic = new_topic(1, on=cluster, config={"max.message.bytes": "2000"})
    values = [b"%d" % number if number != 10 else b"10" + b" " * 5000 for number in range(40)]
    with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append(topic, RecordColumns(10, value=pa.array(values[:10])))
        scope.flush(20)
        proxied_kafka.proxy.pause("to_client")
        scope.append(topic, RecordColumns(30, value=pa.array(values[10:])))
        wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
        proxied_kafka.proxy.resume()
        wait_until(lambda: scope.report().records == 39, "the others acked")
        with pytest.raises(DeliveryError, match=r"^\[DELIVERY\] 1 record failed, 39 were acknowledged: .*MESSAGE_TOO_LARGE"):
            scope.flush(10)
        report = scope.report()
    assert report.errors == {"MESSAGE_TOO_LARGE": 1, "OUT_OF_ORDER_SEQUENCE_NUMBER": 4}
    batches = dump_log(cluster, 1, topic)
    assert [int(record.value or b"") for record in records_of(batches)] == [n for n in range(40) if n != 10]
    assert {batch.producer_epoch for batch in batches} == {0, 1}
    check_numbers(batches)


def test_a_compacted_topic_refuses_what_has_no_key_and_says_so(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, config={"cleanup.policy": "compact"})
    keys = [b"k" if number != 3 else None for number in range(8)]
    columns = RecordColumns(8, key=pa.array(keys, pa.binary()), value=numbers(range(8)).value)
    with one_by_one(kafka.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append(topic, columns)
        wait_until(lambda: scope.report().records == 7, "the others acked")
        with pytest.raises(DeliveryError, match=r"INVALID_RECORD: .*record 0: .*key.*a compacted topic requires a key in each"):
            scope.flush(10)
    assert [record.value for record in read_topic(kafka.direct_servers, topic)] == [b"0", b"1", b"2", b"4", b"5", b"6", b"7"]


@pytest.mark.fault("memory", "a batch expires in flight while the pool is under pressure (KAFKA-19012)")
def test_what_expired_while_the_broker_stood_still_is_stored_once_or_never(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    """The broker finds the requests of given-up connections in its sockets when it goes on, and stores some of them late."""
    cluster = proxied_kafka.cluster
    topic = new_topic(1, on=cluster)
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=1000, delivery_timeout_ms=3000) as producer:
        with failing_scope(producer) as scope:
            scope.append(topic, numbers([0]))
            scope.flush(20)
            cluster.pause(1)
            try:
                scope.append(topic, numbers(range(1, 4)))
                with pytest.raises(DeliveryError, match=r"delivery\.timeout\.ms"):
                    scope.flush(20)
            finally:
                cluster.resume(1)
        with producer.scope() as scope:
            scope.append(topic, numbers(range(10, 20)))
            scope.flush(20)
            assert scope.report().records == 10
    batches = dump_log(cluster, 1, topic)
    found = [int(record.value or b"") for record in records_of(batches)]
    assert found == sorted(set(found))
    assert set(found) - {1, 2, 3} == {0, *range(10, 20)}


# Sequence numbers go on with 0 after 2**31 - 1


LAST = 2**31 - 1
BEFORE_IT = 20
COUNT = 60


@pytest.mark.fault("sequence", "wrap at 2^31")
def test_records_around_the_last_number_are_stored_once_and_in_order_though_answers_are_lost(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    made = PartitionSequences.__init__

    def late(self: PartitionSequences, producer: ProducerIdAndEpoch) -> None:
        """A broker that does not know the producer accepts any first number."""
        made(self, producer)
        self.next_record = self.acked_through = LAST + 1 - BEFORE_IT

    monkeypatch.setattr(PartitionSequences, "__init__", late)
    with one_by_one(proxied_kafka.cluster.bootstrap_servers) as producer, producer.scope() as scope:
        for begin in range(0, COUNT, 10):
            scope.append(topic, numbers(range(begin, begin + 10)))
            proxied_kafka.proxy.cut()
        scope.flush(30)
        assert scope.report().records == COUNT
    read = read_topic(proxied_kafka.cluster.direct_servers, topic)
    assert [int(record.value or b"") for record in read] == list(range(COUNT))
    batches = dump_log(proxied_kafka.cluster, 1, topic)
    assert [batch.base_sequence for batch in batches] == [*range(LAST + 1 - BEFORE_IT, LAST + 1), *range(COUNT - BEFORE_IT)]
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
