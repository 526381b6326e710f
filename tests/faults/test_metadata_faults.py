"""Leaders, topics and brokers that change under a producer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from confluent_kafka.admin import NewPartitions

from spark_kafka_sink.errors import BrokerError, DeliveryError, MetadataTimeoutError, RecordError
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch
from tests.faults.mock_cluster import AS_KAFKA, MockCluster, Received, Say
from tests.faults.numbered_stream import wait_until
from tests.faults.producing import failing_scope, numbers, one_by_one, producer_on, send
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.inside import metadata_of


def test_a_leader_that_moved_is_found_by_asking(cluster2: MockCluster) -> None:
    with one_by_one(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster2.move("t", leader=1)
        assert send(producer, numbers(range(1, 9))) == 8
    assert cluster2.values() == list(range(9))
    assert {received.node for received in cluster2.received} == {0, 1}


@pytest.mark.parametrize("in_flight", [1, 5])
def test_a_leader_named_in_the_refusal_is_used_without_asking_or_waiting(cluster2: MockCluster, in_flight: int) -> None:
    """KIP-951. What Metadata would say meanwhile still names the old leader."""

    def script(received: Received) -> Say:
        moved = received.values != (b"0",) and received.node == 0
        return Say(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderIdAndEpoch(1, 1)) if moved else AS_KAFKA

    cluster2.script = script
    with one_by_one(cluster2.bootstrap_servers, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as producer:
        send(producer, numbers([0]))
        with cluster2.changed:
            cluster2.topics["t"].leaders[0] = 1
            cluster2.described_as["t"] = ([0], [0])
        begun = time.monotonic()
        send(producer, numbers(range(1, 1 + in_flight)))
        assert time.monotonic() - begun < 1.5, "the back-off was waited out although the leader was known"
    assert cluster2.values() == list(range(1 + in_flight))


def test_a_leader_of_an_older_epoch_is_not_believed(cluster2: MockCluster) -> None:
    with one_by_one(cluster2.bootstrap_servers, metadata_max_age_ms=100) as producer:
        cluster2.move("t", leader=1, epoch=5)
        send(producer, numbers([0]))
        asked = cluster2.requests_of(ApiKey.METADATA)
        with cluster2.changed:
            cluster2.described_as["t"] = ([0], [4])
        cluster2.wait_for(lambda: cluster2.requests_of(ApiKey.METADATA) >= asked + 2, "metadata with the older epoch")
        send(producer, numbers(range(1, 5)))
    assert {received.node for received in cluster2.received} == {1}


def test_a_hint_of_an_older_epoch_is_not_believed(cluster2: MockCluster) -> None:
    cluster2.move("t", leader=0, epoch=5)
    with one_by_one(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster2.answers += [Say(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderIdAndEpoch(1, 4))]
        send(producer, numbers([1]))
    assert {received.node for received in cluster2.received} == {0}


def test_a_partition_without_a_leader_waits_for_one(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.move("t", leader=-1)
        cluster.answers += [Say(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        scope.append("t", numbers(range(1, 4)))
        asked = cluster.requests_of(ApiKey.METADATA)
        cluster.wait_for(lambda: cluster.requests_of(ApiKey.METADATA) >= asked + 2, "metadata without a leader")
        cluster.move("t", leader=0)
        scope.flush(10)
    assert cluster.values() == [0, 1, 2, 3]


def test_a_partition_that_gets_no_leader_ends_at_delivery_timeout_and_says_so(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=400, delivery_timeout_ms=400) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([0]))
            scope.flush(10)
            cluster.move("t", leader=-1)
            cluster.answers += [Say(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
            scope.append("t", numbers([1]))
            with pytest.raises(DeliveryError, match=r"delivery.timeout.ms .*NOT_LEADER_OR_FOLLOWER"):
                scope.flush(10)
        with failing_scope(producer) as scope:
            scope.append("t", numbers([2]))
            with pytest.raises(DeliveryError, match=r"never sent: the partition has no leader"):
                scope.flush(10)
        cluster.move("t", leader=0)
        assert send(producer, numbers([3])) == 1


def test_a_topic_that_is_not_there_yet_is_waited_for(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        cluster.on_request[ApiKey.METADATA] = lambda: cluster.requests_of(ApiKey.METADATA) == 3 and cluster.topic("later")
        scope.append("later", numbers([0]))
        scope.flush(10)
    assert cluster.values("later") == [0]


def test_a_topic_that_may_not_be_seen_is_an_error_at_once(cluster: MockCluster) -> None:
    cluster.topic("secret")
    cluster.topics["secret"].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    begun = time.monotonic()
    wanted = pytest.raises(BrokerError, match=r"topic secret: TOPIC_AUTHORIZATION_FAILED: grant this client Describe and Write")
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope, wanted:
        scope.append("secret", numbers([0]))
    assert time.monotonic() - begun < 5


# A row for a partition that is not known: the topic is asked about once more


def delete(cluster: MockCluster, topic: str = "t") -> None:
    with cluster.changed:
        del cluster.topics[topic]


def make_again(cluster: MockCluster, leaders: tuple[int, ...]) -> None:
    """Delete the topic; the third question about it from now on finds it made anew."""
    delete(cluster)
    before = cluster.requests_of(ApiKey.METADATA)
    cluster.on_request[ApiKey.METADATA] = lambda: (
        cluster.requests_of(ApiKey.METADATA) == before + 3 and cluster.topic("t", leaders)
    )


def test_a_partition_that_was_added_is_found_by_asking(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster.topic("t", leaders=(0, 0, 0))
        send(producer, numbers([1], partition=2))
    assert cluster.values("t", 2) == [1]


def test_a_partition_that_is_not_there_is_an_error_that_names_the_row(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        asked = cluster.requests_of(ApiKey.METADATA)
        with pytest.raises(RecordError, match=r"topic t: row 0 of 2: column partition is 2, but there are 1 partitions"):
            send(producer, numbers([1, 2], partition=2))
    assert cluster.requests_of(ApiKey.METADATA) == asked + 1
    assert cluster.values() == [0]


def test_a_topic_that_turns_out_to_be_deleted_is_an_error_at_max_block_ms(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers, max_block_ms=300) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        delete(cluster)
        begun = time.monotonic()
        with pytest.raises(MetadataTimeoutError, match=r"topic t: .*: UNKNOWN_TOPIC_OR_PARTITION.*\. Create the topic"):
            scope.append("t", numbers([1], partition=2))
        assert 0.29 < time.monotonic() - begun < 5
        cluster.topic("t", leaders=(0, 0, 0))
        scope.append("t", numbers([2], partition=2))
        scope.flush(10)
    assert (cluster.values("t", 0), cluster.values("t", 2)) == ([], [2])


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_topic_that_turns_out_to_be_closed_to_us_is_an_error_at_once(cluster: MockCluster, code: ErrorCode) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        with cluster.changed:
            cluster.topics["t"].error = code
        begun = time.monotonic()
        with pytest.raises(BrokerError, match=f"topic t: {code.name}: ") as caught:
            scope.append("t", numbers([1], partition=2))
        assert time.monotonic() - begun < 5
        assert caught.value.facts["error_code"] == code
    assert cluster.values() == [0]


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REQUEST])
def test_another_error_of_the_topic_is_waited_out_until_max_block_ms(cluster: MockCluster, code: ErrorCode) -> None:
    with one_by_one(cluster.bootstrap_servers, max_block_ms=400) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        with cluster.changed:
            cluster.topics["t"].error = code
        begun = time.monotonic()
        with pytest.raises(MetadataTimeoutError, match=f"topic t: no metadata within .*: {code.name}[;. ]"):
            scope.append("t", numbers([1], partition=2))
        assert 0.39 < time.monotonic() - begun < 5


def test_a_topic_that_is_made_anew_with_the_partition_meanwhile_gets_its_rows(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        make_again(cluster, leaders=(0, 0, 0))
        assert send(producer, numbers([1], partition=2)) == 1
    assert cluster.values("t", 2) == [1]


def test_a_topic_that_is_made_anew_without_the_partition_is_an_error_of_the_row(cluster: MockCluster) -> None:
    cluster.topic("t", leaders=(0, 0))
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0], partition=1))
        make_again(cluster, leaders=(0,))
        with pytest.raises(RecordError, match="column partition is 2, but there are 1 partitions, 0 to 0"):
            send(producer, numbers([1], partition=2))


def test_when_nobody_answers_about_the_partition_the_error_comes_at_max_block_ms(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers, max_block_ms=300) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        cluster.stop_reading()
        begun = time.monotonic()
        with pytest.raises(
            MetadataTimeoutError, match=r"topic t: no metadata within \d+ ms; asked broker 0 \(127.*\): no answer yet"
        ):
            scope.append("t", numbers([1], partition=2))
        assert 0.29 < time.monotonic() - begun < 5
        cluster.go_on_reading()


# Topics and brokers that come and go


def test_a_topic_that_was_made_anew_takes_what_comes(cluster: MockCluster) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        send(producer, numbers(range(3)))
        with cluster.changed:
            del cluster.topics["t"]
        with producer.scope() as scope:
            scope.append("t", numbers(range(3, 6)))
            cluster.wait_for(lambda: bool(cluster.attempts(3)), "an attempt at a topic that is gone")
            cluster.topic("t")
            scope.flush(10)
    # All of it. Several were on the wire when the topic came back; it does not know the producer, so it took what came first.
    assert sorted(cluster.values()) == [3, 4, 5]


def test_a_topic_forgotten_for_want_of_use_is_asked_for_again_when_batches_of_it_are_to_be_sent(cluster: MockCluster) -> None:
    """As in Java's Sender.sendProducerData: batches that wait do not keep their topic, their send brings it back."""
    with producer_on(cluster.bootstrap_servers, linger_ms=100_000, metadata_max_age_ms=20) as producer:
        metadata_of(producer)._max_idle_ms = 30  # metadata.max.idle.ms is at least 5 s
        with producer.scope() as scope:
            scope.append("t", numbers(range(3)))
            wait_until(lambda: metadata_of(producer).fetch().partition_count("t") is None, "the topic was not forgotten", 10)
            assert cluster.received == []
            scope.flush(10)
    assert cluster.values() == [0, 1, 2]


def test_a_broker_that_moves_to_another_address_is_followed(cluster: MockCluster) -> None:
    cluster.start(1)
    cluster.topic("t", leaders=(1,))
    with one_by_one(cluster.address(0)) as producer:
        send(producer, numbers([0]))
        cluster.stop(1)
        cluster.start(1)
        send(producer, numbers([1, 2]))
    assert cluster.values() == [0, 1, 2]


def test_nobody_answers_for_the_topic_and_the_error_says_who_was_asked(cluster: MockCluster) -> None:
    cluster.stop(0)
    with (
        producer_on("127.0.0.1:1", max_block_ms=200) as producer,
        producer.scope() as scope,
        pytest.raises(MetadataTimeoutError, match=r"127\.0\.0\.1:1: could not connect"),
    ):
        scope.append("t", numbers([0]))


def test_an_append_waits_for_metadata_until_max_block_ms_in_all_and_not_as_long_for_each_answer(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines: list[float] = []

    def noted(wait: Callable[..., object]) -> Callable[..., object]:
        def waits(self: ProducerMetadata, topic: str, deadline: float, wakeup: Callable[[], None]) -> object:
            deadlines.append(deadline)
            return wait(self, topic, deadline, wakeup)

        return waits

    with one_by_one(cluster.bootstrap_servers, max_block_ms=300) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        delete(cluster)
        for wait in ("refresh_topic", "wait_for_topic"):
            monkeypatch.setattr(ProducerMetadata, wait, noted(getattr(ProducerMetadata, wait)))
        with pytest.raises(MetadataTimeoutError):
            scope.append("t", numbers([1], partition=2))
    assert len(deadlines) == 2
    assert len(set(deadlines)) == 1


# Real Kafka


def test_partitions_that_are_added_meanwhile_get_records(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with producer_on(kafka.bootstrap_servers, metadata_max_age_ms=100, batch_size=500) as producer:
        send(producer, numbers(range(100)), topic)
        kafka.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
        deadline = time.monotonic() + 20
        sent = 100
        while len({record.partition for record in read_topic(kafka.direct_servers, topic)}) < 4:
            assert time.monotonic() < deadline, "no record came to the new partitions"
            send(producer, numbers(range(sent, sent + 500)), topic)
            sent += 500
    read = sorted(int(record.value or b"") for record in read_topic(kafka.direct_servers, topic))
    assert read == list(range(sent))


def test_a_topic_deleted_and_made_again_mid_way_takes_the_rest_once_and_in_order(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    columns = [numbers(range(start, start + 10), start // 10 % 2) for start in range(0, 400, 10)]
    with producer_on(kafka.bootstrap_servers, batch_size=100) as producer:
        for part in columns[:20]:
            send(producer, part, topic)
        kafka.delete_topic(topic)
        kafka.wait_for(lambda: topic not in kafka.metadata().topics, "the topic gone", 20)
        with producer.scope() as scope:

            def make_again() -> None:
                wait_until(lambda: metadata_of(producer).fetch().topic_error(topic) != 0, "the producer missed the topic", 20)
                kafka.create_topic(topic, 2)

            making = threading.Thread(target=make_again)
            making.start()
            for part in columns[20:]:  # an append waits for the topic once it is missed
                scope.append(topic, part)
            making.join(30)
            scope.flush(30)
            assert scope.report().records == 200
    found = [
        [int(r.value or b"") for r in read_topic(kafka.direct_servers, topic, partitions=[partition])] for partition in (0, 1)
    ]
    assert sorted(found[0] + found[1]) == list(range(200, 400))
    assert all(np.all(np.diff(values) > 0) for values in found)
