"""Records that a broker rejects, where their scope keeps them: it gets them as they were sent, and everything else is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import BrokerError, DeliveryError
from spark_kafka_sink.producer.base.bad_rows import BadRows
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import TransactionScope
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import ProduceRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import buffered_bytes, failing_scope, figure, numbers, producer_on
from tests.faults.recording_broker import RecordingBroker, numbers_in, says
from tests.faults.test_rejected_records import WIDTH, reject
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.producer.transactions.transacting import deadline, scoped, somebody_else, state_of, until_read
from tests.waiting import wait_until

E = ErrorCode
ORDERED = pytest.mark.parametrize("settings", [{}, {"enable_idempotence": "false", "max_in_flight_requests_per_connection": 1}])


def kept_numbers(rejected: Collection[BadRows]) -> list[int]:
    return [int(value) for rows in rejected for value in rows.columns.value.to_pylist()]  # type: ignore[union-attr]


def row_numbers(rejected: Collection[BadRows]) -> list[int]:
    return [number for rows in rejected if rows.rows is not None for number in rows.rows.tolist()]


def has(*bad: int) -> Callable[[ProduceRequest], bool]:
    return lambda body: bool(set(numbers_in(body)) & set(bad))


# Without a transaction


@ORDERED
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_what_is_rejected_comes_back_as_it_was_sent_and_fails_nothing(
    cluster: RecordingBroker, settings: dict[str, object], codec: str
) -> None:
    reject(cluster, {3, 4, 9})
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[("a", b"%d" % n), ("b", None)] if n % 2 else [] for n in range(10)]
    columns = RecordColumns(
        10,
        value=pa.array([b"%d" % n for n in range(10)]),
        key=pa.array([None if n == 4 else b"k%d" % n for n in range(10)]),
        headers=pa.array([[{"key": k, "value": v} for k, v in row] for row in headers], pa.list_(pair)),
        timestamp=np.arange(1000, 1010),
        fixed_headers=(("fixed", b"x"),),
    )
    with producer_on(cluster.bootstrap_servers, compression_type=codec, **settings) as producer:
        with producer.scope(keeps_rejected=True) as scope:
            scope.append("t", columns)
            scope.flush(10)
            found = scope.take_rejected()
            assert scope.take_rejected() == []
            report = scope.report()
        wait_until(lambda: buffered_bytes(producer) == 0, "all memory")
        assert figure(producer, "record-error-total") == 3
    assert cluster.values() == [0, 1, 2, 5, 6, 7, 8]
    assert (report.records, report.errors) == (7, {"INVALID_RECORD": 1})
    assert [(rows.topic, rows.partition, rows.rows, rows.columns.num_records) for rows in found] == [("t", 0, None, 1)] * 3
    assert [rows.columns.key.to_pylist() for rows in found if rows.columns.key is not None] == [[b"k3"], [None], [b"k9"]]
    assert [rows.columns.timestamp.tolist() for rows in found if rows.columns.timestamp is not None] == [[1003], [1004], [1009]]
    kept_headers = [rows.columns.headers.to_pylist()[0] for rows in found if rows.columns.headers is not None]
    assert [[(pair["key"], pair["value"]) for pair in row] for row in kept_headers] == [
        [*headers[n], ("fixed", b"x")] for n in (3, 4, 9)
    ]
    for rows, number in zip(found, (3, 4, 9), strict=True):
        assert isinstance(rows.error, BrokerError)
        assert f"INVALID_RECORD: {number} is bad" in rows.error.message


@ORDERED
@pytest.mark.parametrize(
    ("code", "bad"),
    [
        (E.INVALID_RECORD, {0}),
        (E.INVALID_RECORD, set(range(20))),
        (E.INVALID_TIMESTAMP, {5, 6}),
        (E.RECORD_LIST_TOO_LARGE, {19}),
    ],
    ids=str,
)
def test_where_no_record_is_named_halves_are_sent_until_only_the_bad_ones_are_left(
    cluster: RecordingBroker, settings: dict[str, object], code: ErrorCode, bad: set[int]
) -> None:
    """Brokers before 2.4 name none."""
    cluster.faults.answer(ApiKey.PRODUCE, says(code), times=None, when=has(*bad))
    with producer_on(cluster.bootstrap_servers, **settings) as producer, producer.scope(keeps_rejected=True) as scope:
        scope.append("t", numbers(range(10)), row_numbers=lambda positions: positions + 100)
        scope.append("t", numbers(range(10, 20)), row_numbers=lambda positions: positions + 110)
        scope.flush(20)
        found = scope.take_rejected()
    assert kept_numbers(found) == sorted(bad)
    assert row_numbers(found) == [number + 100 for number in sorted(bad)]
    assert cluster.values() == [n for n in range(20) if n not in bad]


def test_a_record_that_is_too_large_for_its_topic_comes_back_and_the_others_go_on(cluster: RecordingBroker) -> None:
    cluster.topic(max_message_bytes=1000)
    values = [b"%0*d" % (2000 if n == 7 else 90, n) for n in range(20)]
    with producer_on(cluster.bootstrap_servers) as producer, producer.scope(keeps_rejected=True) as scope:
        scope.append("t", RecordColumns(20, value=pa.array(values)))
        scope.flush(20)
        (found,) = scope.take_rejected()
    assert kept_numbers([found]) == [7]
    assert "MESSAGE_TOO_LARGE" in found.error.message
    assert cluster.values() == [n for n in range(20) if n != 7]


def test_other_failures_fail_the_scope_as_ever(cluster: RecordingBroker) -> None:
    cluster.faults.answer(ApiKey.PRODUCE, says(E.TOPIC_AUTHORIZATION_FAILED))
    with producer_on(cluster.bootstrap_servers) as producer, producer.scope(keeps_rejected=True) as scope:
        scope.append("t", numbers([1]))
        with pytest.raises(DeliveryError, match="TOPIC_AUTHORIZATION_FAILED"):
            scope.flush(10)
        scope.discard()


def test_more_than_the_buffer_holds_is_not_kept(cluster: RecordingBroker) -> None:
    bad = set(range(100, 200))
    reject(cluster, bad)
    with (
        producer_on(cluster.bootstrap_servers, buffer_memory=1 << 18, batch_size=1100) as producer,
        producer.scope(keeps_rejected=True) as scope,
    ):
        scope.append("t", numbers(range(100, 200), width=200))
        scope.flush(10)
        assert kept_numbers(scope.take_rejected()) == sorted(bad)
        scope.append("t", numbers(range(100, 200), width=200))
        scope.flush(10)
        scope.append("t", numbers(range(100, 200), width=200))
        scope.flush(10)
        with pytest.raises(DeliveryError, match=r"INVALID_RECORD.* than buffer\.memory holds"):
            scope.append("t", numbers(range(100, 200), width=200))
            scope.flush(10)
        scope.discard()


@pytest.mark.parametrize("bad", [{1}, {1, 2, 3, 4, 5}, {2, 5}], ids=str)
def test_a_flush_counts_what_became_of_the_records_behind_a_rejected_one(cluster: RecordingBroker, bad: set[int]) -> None:
    reject(cluster, {10 * n + 4 for n in bad})
    with producer_on(cluster.bootstrap_servers, batch_size=1100) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers(range(10, 60), width=WIDTH))
        with pytest.raises(DeliveryError) as raised:
            scope.flush(10)
        assert raised.value.facts == {"failed": len(bad), "acked": 50 - len(bad)}


def test_a_scope_does_not_end_without_a_word_while_rejected_records_were_not_taken(cluster: RecordingBroker) -> None:
    reject(cluster, {1, 2})
    text = r"^\[DELIVERY\] 2 records that brokers rejected were not taken; call .* before the scope ends: .*INVALID_RECORD"
    with producer_on(cluster.bootstrap_servers) as producer:
        with pytest.raises(DeliveryError, match=text) as raised, producer.scope(keeps_rejected=True) as scope:
            scope.append("t", numbers(range(4)))
        assert isinstance(raised.value.__cause__, BrokerError)
        assert raised.value.facts == {"failed": 2, "acked": 2}
        assert kept_numbers(scope.take_rejected()) == [1, 2]
        with pytest.raises(ZeroDivisionError), producer.scope(keeps_rejected=True) as scope:
            scope.append("t", numbers([1]))
            scope.flush(10)
            raise ZeroDivisionError


# In a transaction


@contextmanager
def transaction(producer: Producer, name: str) -> Iterator[TransactionScope]:
    with producer.transaction(name, keeps_rejected=True) as scope:
        yield scope


def commit(on: RecordingBroker | Kafka, scope: TransactionScope) -> None:
    handle = scope.prepare(20)
    assert handle is not None
    with somebody_else(on) as other:
        other.end([handle], True, deadline())


@pytest.mark.parametrize("width", [10, 1])
@pytest.mark.parametrize("bad", [{1}, {1, 2, 3, 4, 5}, {2, 5}], ids=str)
def test_of_five_in_flight_a_transaction_commits_the_others(leader: RecordingBroker, bad: set[int], width: int) -> None:
    """width: records of each batch. With one, whole batches are left out."""
    rows = range(width, 6 * width)
    rejected = {width * n + (4 if width > 4 else 0) for n in bad}
    with (
        scoped(leader.bootstrap_servers, batch_size=1100 if width > 1 else 1, linger_ms=20) as producer,
        transaction(producer, "x") as scope,
    ):
        scope.append("t", numbers([0]))
        scope.flush(10)
        held = leader.faults.hold(ApiKey.PRODUCE)
        reject(leader, rejected)
        scope.append("t", numbers(rows, width=WIDTH), row_numbers=lambda positions: positions + width)
        wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
        held.remove()
        scope.flush(20)
        found = scope.take_rejected()
        assert kept_numbers(found) == row_numbers(found) == sorted(rejected)
        scope.append("t", numbers([100]))
        commit(leader, scope)
    until_read(leader, "t", [0, *(n for n in rows if n not in rejected), 100])
    assert len({received.batch.producer_epoch for received in leader.received}) == 1


def test_a_transaction_of_which_everything_is_rejected_leaves_nothing_open(leader: RecordingBroker) -> None:
    reject(leader, {0, 1, 2})
    with scoped(leader.bootstrap_servers) as producer:
        with transaction(producer, "all-rejected") as scope:
            scope.append("t", numbers(range(3)))
            scope.flush(10)
            assert kept_numbers(scope.take_rejected()) == [0, 1, 2]
            assert scope.prepare(10) is None
        assert state_of(leader, "all-rejected") in ("CompleteAbort", "PrepareAbort", "Empty")
        with transaction(producer, "all-rejected") as scope:
            scope.append("t", numbers([5]))
            commit(leader, scope)
    until_read(leader, "t", [5])


def test_a_transaction_is_not_prepared_before_its_rejected_records_are_taken(leader: RecordingBroker) -> None:
    reject(leader, {1})
    with scoped(leader.bootstrap_servers) as producer, transaction(producer, "not-taken") as scope:
        scope.append("t", numbers(range(3)))
        with pytest.raises(DeliveryError, match=r"1 record that brokers rejected was not taken; call .* before prepare\(\)"):
            scope.prepare(10)
        assert kept_numbers(scope.take_rejected()) == [1]
        commit(leader, scope)
    until_read(leader, "t", [0, 2])


def test_an_attempt_without_an_answer_before_the_rejection_ends_the_transaction(leader: RecordingBroker) -> None:
    """A copy of it could arrive later, under numbers that other records have by then."""
    with scoped(leader.bootstrap_servers) as producer, transaction(producer, "unanswered") as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        leader.faults.answer(ApiKey.PRODUCE, says(E.REQUEST_TIMED_OUT))
        reject(leader, {1})
        scope.append("t", numbers([1, 2]))
        with pytest.raises(DeliveryError, match=r"INVALID_RECORD.* an earlier attempt was not answered"):
            scope.flush(10)


# Real Kafka


def null_keys(rows: Collection[int], every: int) -> RecordColumns:
    values = [b"%d" % n for n in rows]
    return RecordColumns(
        len(values), value=pa.array(values), key=pa.array([None if n % every == 0 else b"k%d" % n for n in rows])
    )


def test_with_five_batches_in_flight_readers_of_a_transaction_see_the_good_rows_once_and_in_order(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    cluster = proxied_kafka.cluster
    topic = new_topic(2, on=cluster, config={"cleanup.policy": "compact"})
    kept: list[int] = []
    with scoped(cluster.bootstrap_servers, batch_size=300) as producer:
        for turn in range(2):
            with transaction(producer, f"{topic}-{turn}") as scope:
                proxied_kafka.proxy.delay(0.02)  # so that there are five under way when one of them is refused
                for start in range(0, 300, 100):
                    columns = null_keys(range(turn * 300 + start, turn * 300 + start + 100), 40)
                    partition = np.arange(100, dtype=np.int32) % 2
                    scope.append(topic, RecordColumns(100, columns.value, columns.key, partition=partition))
                scope.flush(60)
                kept += kept_numbers(scope.take_rejected())
                proxied_kafka.proxy.delay(0)
                commit(cluster, scope)
    assert sorted(kept) == list(range(0, 600, 40))
    good = [n for n in range(600) if n % 40]
    until_read(cluster, topic, [*(n for n in good if n % 2 == 0), *(n for n in good if n % 2)])
