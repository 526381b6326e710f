"""Leaders, topics and brokers that change under a producer."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from confluent_kafka.admin import NewPartitions

from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.errors import AuthorizationError, BrokerError, DeliveryError, MetadataTimeoutError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.apis.produce import LeaderIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.producing import failing_scope, figure, numbers, one_by_one, producer_on, send
from tests.faults.recording_broker import RecordingBroker, of_partitions, says, tells_leader
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import TcpProxy
from tests.kafka.witness import read_topic
from tests.producer.inside import meet
from tests.waiting import HOUR_MS, wait_until


@pytest.mark.fault("metadata", "NOT_LEADER without it")
def test_a_leader_that_moved_is_found_by_asking(cluster2: RecordingBroker) -> None:
    with one_by_one(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster2.move_leader("t", 0, 2)
        cluster2.faults.alter(ApiKey.PRODUCE, of_partitions(lambda said: [replace(said, current_leader=None)]), times=None)
        assert send(producer, numbers(range(1, 9))) == 8
    assert cluster2.values() == list(range(9))
    assert {received.broker for received in cluster2.received} == {1, 2}


@pytest.mark.fault("metadata", "NOT_LEADER with the new leader in the answer")
@pytest.mark.parametrize("in_flight", [1, 5])
def test_a_leader_named_in_the_refusal_is_used_without_asking_or_waiting(
    cluster2: RecordingBroker, in_flight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-951. What Metadata would say meanwhile still names the old leader."""
    with one_by_one(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        monkeypatch.setattr(ExponentialBackoff, "backoff_ms", lambda *_: HOUR_MS)
        cluster2.faults.alter(ApiKey.METADATA, tells_leader(1, cluster2.leader_epoch()), times=None)
        cluster2.move_leader("t", 0, 2)
        send(producer, numbers(range(1, 1 + in_flight)))
    assert cluster2.values() == list(range(1 + in_flight))


@pytest.mark.fault("metadata", "stale leader epoch")
def test_a_leader_of_an_older_epoch_is_not_believed(cluster2: RecordingBroker) -> None:
    with one_by_one(cluster2.bootstrap_servers, metadata_max_age_ms=100) as producer:
        cluster2.move_leader("t", 0, 2)
        send(producer, numbers([0]))
        cluster2.faults.alter(ApiKey.METADATA, tells_leader(1, cluster2.leader_epoch() - 1), times=None).wait(2)
        send(producer, numbers(range(1, 5)))
    assert {received.broker for received in cluster2.received} == {2}


@pytest.mark.fault("metadata", "stale leader epoch")
def test_a_hint_of_an_older_epoch_is_not_believed(cluster2: RecordingBroker) -> None:
    for broker in (2, 1):
        cluster2.move_leader("t", 0, broker)
    with one_by_one(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        hint = LeaderIdAndEpoch(2, cluster2.leader_epoch() - 1)
        cluster2.faults.answer(ApiKey.PRODUCE, says(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint))
        send(producer, numbers([1]))
    assert {received.broker for received in cluster2.received} == {1}


def without_a_leader(cluster: RecordingBroker) -> tuple[Fault, Fault]:
    """The partition loses its leader, which refuses each batch; the ends of both faults give it back."""
    refused = cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
    return refused, cluster.faults.alter(ApiKey.METADATA, tells_leader(-1, cluster.leader_epoch()), times=None)


@pytest.mark.fault("metadata", "partition without a leader")
def test_a_partition_without_a_leader_waits_for_one(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        refused, lost = without_a_leader(cluster)
        scope.append("t", numbers(range(1, 4)))
        lost.wait(2)
        refused.remove()
        lost.remove()
        scope.flush(10)
    assert cluster.values() == [0, 1, 2, 3]


@pytest.mark.fault("metadata", "partition without a leader")
def test_a_partition_that_gets_no_leader_ends_at_delivery_timeout_and_says_so(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=3000, delivery_timeout_ms=3000) as producer:
        send(producer, numbers([0]))
        refused, lost = without_a_leader(cluster)
        with failing_scope(producer) as scope, failing_scope(producer) as later:
            scope.append("t", numbers([1]))
            lost.wait(2)  # when it asks a second time, it knows that there is no leader
            later.append("t", numbers([2]))
            with pytest.raises(DeliveryError, match=r"delivery.timeout.ms .*NOT_LEADER_OR_FOLLOWER"):
                scope.flush(10)
            with pytest.raises(DeliveryError, match=r"never sent: the partition has no leader"):
                later.flush(10)
        refused.remove()
        lost.remove()
        assert send(producer, numbers([3])) == 1


def test_what_waits_for_a_leader_fails_once_the_topic_may_not_be_seen_any_more(cluster: RecordingBroker) -> None:
    """Java leaves it until delivery.timeout.ms."""
    with one_by_one(cluster.bootstrap_servers, max_block_ms=20_000) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.faults.fail(ApiKey.METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="t", times=None)
        cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
        scope.append("t", numbers([1]))
        wanted = r"topic t partition 0: 1 record failed, .*not authorized for Describe on topic t; .* --producer --topic t`"
        with pytest.raises(DeliveryError, match=wanted) as caught:
            scope.flush(20)
        assert isinstance(caught.value.__cause__, AuthorizationError)
        assert "may have been stored" in str(caught.value)
    assert cluster.values() == [0]


# A row for a partition that is not known: the topic is asked about once more


@pytest.mark.fault("metadata", "partitions added")
def test_a_partition_that_was_added_is_found_by_asking(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster.cluster.create_partitions("t", 3)
        send(producer, numbers([1], partition=2))
    assert cluster.values("t", 2) == [1]


def test_a_topic_that_turns_out_to_be_deleted_is_an_error_at_max_block_ms(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers, max_block_ms=1000) as producer, producer.scope() as scope:
        meet(producer, "t")
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.delete()
        begun = time.monotonic()
        with pytest.raises(MetadataTimeoutError, match=r"topic t: .*: UNKNOWN_TOPIC_OR_PARTITION.*\. Create the topic"):
            scope.append("t", numbers([1], partition=2))
        assert time.monotonic() - begun > 0.99
        cluster.topic("t", leaders=(1, 1, 1))
        scope.append("t", numbers([2], partition=2))
        scope.flush(10)
    assert (cluster.values("t", 0), cluster.values("t", 2)) == ([], [2])


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_topic_that_turns_out_to_be_closed_to_us_is_an_error_at_once(cluster: RecordingBroker, code: ErrorCode) -> None:
    with one_by_one(cluster.bootstrap_servers, max_block_ms=HOUR_MS) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.faults.fail(ApiKey.METADATA, code, topic="t", times=None)
        with pytest.raises(BrokerError, match=f"topic t: {code.name}[:;] ") as caught:
            scope.append("t", numbers([1], partition=2))
        assert caught.value.facts["error_code"] == code
    assert cluster.values() == [0]


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST])
def test_another_error_of_the_topic_is_waited_out_until_max_block_ms(cluster: RecordingBroker, code: ErrorCode) -> None:
    with one_by_one(cluster.bootstrap_servers, max_block_ms=1000) as producer, failing_scope(producer) as scope:
        meet(producer, "t")
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.faults.fail(ApiKey.METADATA, code, topic="t", times=None)
        begun = time.monotonic()
        with pytest.raises(MetadataTimeoutError, match=f"topic t: timed out waiting for metadata after .*: {code.name}[;. ]"):
            scope.append("t", numbers([1], partition=2))
        assert time.monotonic() - begun > 0.99


# Topics and brokers that come and go


@pytest.mark.fault("metadata", "topic deleted and made again")
def test_a_topic_that_was_made_anew_takes_what_comes(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers(range(3)))
        cluster.delete()
        with producer.scope() as scope:
            scope.append("t", numbers(range(3, 6)))
            wait_until(lambda: bool(cluster.attempts(3)), "an attempt at a topic that is gone")
            cluster.topic()
            scope.flush(10)
    # All of it. Several were on the wire when the topic came back; it does not know the producer, so it took what came first.
    assert sorted(cluster.values()) == [3, 4, 5]


@pytest.mark.fault("metadata", "topic unused for long, with batches waiting")
def test_a_topic_forgotten_for_want_of_use_is_asked_for_again_when_batches_of_it_are_to_be_sent(cluster: RecordingBroker) -> None:
    """As in Java's Sender.sendProducerData: batches that wait do not keep their topic, their send brings it back."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 100_000, "metadata.max.age.ms": 20}
    config = replace(producer_config(settings), metadata_max_idle_ms=30)  # as an option it is at least 5 s
    without_it = cluster.faults.watch(ApiKey.METADATA, when=lambda body: all(topic.name != "t" for topic in body.topics))
    with Producer(config) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(3)))
        without_it.wait(without_it.hits + 2)
        assert cluster.received == []
        scope.flush(10)
    assert cluster.values() == [0, 1, 2]


@pytest.mark.fault("connection", "a broker changes host and port")
def test_a_broker_that_moves_to_another_address_is_followed(cluster2: RecordingBroker, proxy: TcpProxy) -> None:
    """Broker 2 is behind the proxy, and then is where it listens itself."""

    def behind_proxy(body: MetadataRequest, answer: MetadataResponse) -> MetadataResponse:
        brokers = [replace(each, port=proxy.port) if each.node_id == 2 else each for each in answer.brokers]
        return replace(answer, brokers=brokers)

    cluster2.topic("t", leaders=(2,))
    proxy.forward_to(cluster2.address(2))
    moved = cluster2.faults.alter(ApiKey.METADATA, behind_proxy, times=None)
    with one_by_one(cluster2.address(1)) as producer:
        send(producer, numbers([0]))
        assert proxy.open_connections == 1
        moved.remove()
        proxy.refuse()
        proxy.cut()
        send(producer, numbers([1, 2]))
    assert cluster2.values() == [0, 1, 2]


def test_an_append_waits_for_metadata_until_max_block_ms_in_all_and_not_as_long_for_each_answer(cluster: RecordingBroker) -> None:
    """The first answer takes 1,500 ms of 3,000, so that 1,500 are left for the topic, and as many for a busy machine."""
    with one_by_one(cluster.bootstrap_servers, max_block_ms=3000) as producer, failing_scope(producer) as scope:
        meet(producer, "t")
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.delete()
        cluster.faults.delay(ApiKey.METADATA, 1500)
        with pytest.raises(MetadataTimeoutError) as raised:
            scope.append("t", numbers([1], partition=2))
    waited = re.search(r"timed out waiting for metadata after ([\d,]+) ms", str(raised.value))
    assert waited is not None
    assert int(waited[1].replace(",", "")) < 3000


# Real Kafka


@pytest.mark.fault("metadata", "partitions added")
def test_partitions_that_are_added_meanwhile_get_records(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with producer_on(kafka.bootstrap_servers, metadata_max_age_ms=100, batch_size=500) as producer:
        send(producer, numbers(range(100)), topic)
        kafka.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
        sent = 100
        while len({record.partition for record in read_topic(kafka.direct_servers, topic)}) < 4:
            send(producer, numbers(range(sent, sent + 500)), topic)
            sent += 500
    read = sorted(int(record.value or b"") for record in read_topic(kafka.direct_servers, topic))
    assert read == list(range(sent))


@pytest.mark.fault("metadata", "topic deleted and made again")
def test_a_topic_deleted_and_made_again_mid_way_takes_the_rest_once_and_in_order(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    columns = [numbers(range(start, start + 10), start // 10 % 2) for start in range(0, 400, 10)]
    with producer_on(kafka.bootstrap_servers, batch_size=100) as producer:
        for part in columns[:20]:
            send(producer, part, topic)
        kafka.delete_topic(topic)
        kafka.wait_for(lambda: topic not in kafka.metadata().topics, "the topic gone", 20)
        waited_ns = figure(producer, "metadata-wait-time-ns-total")

        def has_missed_it() -> bool:
            return figure(producer, "metadata-wait-time-ns-total") > waited_ns

        def ask() -> None:
            while not has_missed_it():
                producer.partitions_for(topic)
                time.sleep(0.005)

        def make_again() -> None:
            wait_until(has_missed_it, "the producer missed the topic")
            kafka.create_topic(topic, 2)

        with producer.scope() as scope:
            threads = [threading.Thread(target=each) for each in (ask, make_again)]
            for thread in threads:
                thread.start()
            for part in columns[20:]:  # an append waits for the topic once it is missed
                scope.append(topic, part)
            for thread in threads:
                thread.join(30)
            scope.flush(30)
            assert scope.report().records == 200
    found = [
        [int(r.value or b"") for r in read_topic(kafka.direct_servers, topic, partitions=[partition])] for partition in (0, 1)
    ]
    assert sorted(found[0] + found[1]) == list(range(200, 400))
    assert all(np.all(np.diff(values) > 0) for values in found)
