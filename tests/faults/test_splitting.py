"""Batches over a topic's max.message.bytes: they go on in smaller ones, each record once and in order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import DeliveryError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.mock_cluster import MockCluster, Received, Say
from tests.faults.producing import failing_scope, numbers, producer_on

E = ErrorCode
WIDTH = 90  # of a value: about 100 bytes a record


def known(cluster: MockCluster, producer: Producer) -> None:
    """Let the broker store something of this producer: from then on five may be in flight."""
    with producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)


def sent_sizes(cluster: MockCluster) -> list[int]:
    return [len(received.values) for received in cluster.received]


@pytest.mark.parametrize("settings", [{}, {"enable_idempotence": "false", "max_in_flight_requests_per_connection": 1}])
def test_what_is_too_large_is_halved_until_it_is_taken(cluster: MockCluster, settings: dict[str, object]) -> None:
    cluster.max_message_bytes = 1000
    with producer_on(cluster.bootstrap_servers, batch_size=8000, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(60), width=WIDTH))
        scope.flush(10)
        report = scope.report()
    assert cluster.values() == list(range(60))
    assert report.records == 60
    assert report.errors == {"MESSAGE_TOO_LARGE": len(cluster.too_large)}
    assert report.retries == 0
    assert sent_sizes(cluster)[:4] == [60, 30, 15, 7]
    assert (report.partitions["t", 0].first_offset, report.partitions["t", 0].last_offset) == (0, 59)


def test_the_next_batches_of_the_topic_are_no_larger_than_what_it_takes(cluster: MockCluster) -> None:
    cluster.max_message_bytes = 1000
    with producer_on(cluster.bootstrap_servers, batch_size=8000) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(60), width=WIDTH))
        scope.flush(10)
        refused = len(cluster.too_large)
        scope.append("t", numbers(range(60, 120), width=WIDTH))
        scope.flush(10)
    assert len(cluster.too_large) == refused
    assert cluster.values() == list(range(120))


def test_one_that_is_too_large_alone_fails_alone(cluster: MockCluster) -> None:
    cluster.max_message_bytes = 1000
    values = [b"%0*d" % (2000 if number == 13 else 9, number) for number in range(20)]
    with producer_on(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", RecordColumns(20, value=pa.array(values)))
        with pytest.raises(DeliveryError, match=r"1 records refused: MESSAGE_TOO_LARGE; one record alone is over"):
            scope.flush(10)
        cluster.wait_for(lambda: cluster.values() == [n for n in range(20) if n != 13], "the others stored")


def test_retries_need_not_be_left_for_a_split(cluster: MockCluster) -> None:
    cluster.max_message_bytes = 1000
    settings: dict[str, object] = {"retries": 0, "max_in_flight_requests_per_connection": 1}
    with producer_on(cluster.bootstrap_servers, batch_size=8000, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(60), width=WIDTH))
        scope.flush(10)
    assert cluster.values() == list(range(60))


@pytest.mark.parametrize("large", [{1}, {3}, {5}, {1, 2, 3, 4, 5}])
def test_of_five_in_flight_those_too_large_are_split_and_the_others_wait_for_them(cluster: MockCluster, large: set[int]) -> None:
    """Batch n of five holds 10 n to 10 n + 9. What follows one that is split is refused as out of order, and sent again."""

    def script(received: Received) -> Say:
        number = int(received.values[0] or b"") // 10
        refused = number in large and len(received.values) == 10
        return Say(E.MESSAGE_TOO_LARGE if refused else 0, hold=number == 1 and len(received.values) == 10)

    with producer_on(cluster.bootstrap_servers, batch_size=1100, linger_ms=20) as producer:
        known(cluster, producer)
        cluster.script = script
        with producer.scope() as scope:
            scope.append("t", numbers(range(10, 60), width=WIDTH))
            cluster.wait_for(lambda: len(cluster.received) == 6, "five in flight")
            assert sent_sizes(cluster) == [1, 10, 10, 10, 10, 10]
            cluster.release()
            scope.flush(10)
            assert scope.report().records == 50
    assert cluster.values() == [0, *range(10, 60)]
    assert {received.batch.producer_epoch for received in cluster.received} == {0}
