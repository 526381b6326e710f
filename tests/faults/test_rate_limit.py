"""A rate limit slows appends down and changes nothing else: order, errors, transactions, and the end of a wait."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DeliveryError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    RecordError,
    TransactionAbortableError,
    TransactionTimeoutError,
    UsageError,
)
from spark_kafka_sink.producer.interceptors import ColumnsInterception, ColumnsThunk
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.sender import outage_log
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, figure, numbers, one_by_one, producer_on, send
from tests.faults.recording_broker import RecordingBroker, carries
from tests.producer.inside import meet
from tests.producer.recording_interceptors import Recording
from tests.waiting import wait_until

NEVER = {"max_records_per_second": 1}
"""A limit under which two appended records take a second, and a hundred longer than any test."""


@pytest.mark.fault("rate", "a rate limit")
def test_an_append_takes_as_long_as_its_records_may_and_keeps_their_order(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, max_records_per_second=1000) as producer, producer.scope() as scope:
        begun = time.monotonic()
        scope.append("t", numbers(range(2400)))
        took = time.monotonic() - begun
        scope.flush(10)
        report = scope.report()
        waited_s = figure(producer, "rate-limit-wait-time-ns-total") / 1e9
        assert figure(producer, "rate-limit-wait-ratio") > 0
    assert took > 1.39  # all but one second's worth
    assert report.rate_limited_ms / 1000 == pytest.approx(waited_s, abs=0.01)
    assert 0 < waited_s <= took
    assert f"held back by the rate limit for {report.rate_limited_ms / 1000:.1f} s" in repr(report)
    assert cluster.values() == list(range(2400))


def test_bytes_are_limited_before_compression(cluster: RecordingBroker) -> None:
    settings = {"max_bytes_per_second": 75_000, "compression_type": "zstd"}
    with producer_on(cluster.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        begun = time.monotonic()
        scope.append("t", numbers(range(100), width=1000))
        scope.flush(10)
        report = scope.report()
        assert report.compressed_bytes < report.bytes / 5
        assert time.monotonic() - begun > 0.32


def test_scopes_and_single_records_share_the_limit(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, max_records_per_second=20) as producer:
        with producer.scope() as scope:
            scope.append("t", numbers(range(5)))
        begun = time.monotonic()
        for value in range(5, 40):
            producer.send("t", b"%d" % value)
        assert time.monotonic() - begun > 0.74
        producer.flush(10)
    assert sorted(cluster.values()) == list(range(40))


def test_a_callback_never_waits_for_the_limit(cluster: RecordingBroker) -> None:
    sent = threading.Event()

    def again(*_: object) -> None:
        producer.send("t", b"1")
        sent.set()

    with producer_on(cluster.bootstrap_servers, max_bytes_per_second=1) as producer:
        producer.send("t", b"%04000d" % 0, on_completion=again).result(10)  # has spent an hour's worth
        sent.wait()
        producer.flush(10)
    assert cluster.values() == [0, 1]


def test_an_invalid_row_is_refused_before_anything_waits(cluster: RecordingBroker) -> None:
    columns = numbers(range(100), partition=0)
    assert columns.partition is not None
    columns.partition[99] = -7
    with producer_on(cluster.bootstrap_servers, **NEVER) as producer, producer.scope() as scope:
        with pytest.raises(RecordError):
            scope.append("t", columns)
        assert scope.report().rate_limited_ms == 0


# The end of a wait


@contextmanager
def waiting(producer: Producer, columns: RecordColumns) -> Iterator[tuple[SendScope, list[BaseException]]]:
    """An append in another thread that has sent a record or more and waits with the others. It ends in the `with`."""
    errors: list[BaseException] = []
    with failing_scope(producer) as scope:

        def append() -> None:
            try:
                scope.append("t", columns)
            except BaseException as error:
                errors.append(error)

        writer = threading.Thread(target=append)
        writer.start()
        wait_until(lambda: scope.report().records >= 1, "the first record acked")
        yield scope, errors
        writer.join(10)
        assert not writer.is_alive()


@pytest.mark.fault("rate", "a rate limit")
def test_a_producer_that_is_closed_ends_the_wait(cluster: RecordingBroker) -> None:
    producer = producer_on(cluster.bootstrap_servers, **NEVER)
    with waiting(producer, numbers(range(100))) as (scope, errors):
        producer.close(10)
    assert isinstance(errors[0], UsageError)
    assert errors[0].message == "the producer is closed"
    assert figure(producer, "record-error-total") == 100 - scope.report().records < 100


def test_a_record_of_the_scope_that_fails_ends_the_wait(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, when=carries(1))
    with one_by_one(cluster.bootstrap_servers, **NEVER) as producer, waiting(producer, numbers(range(100))) as (_, errors):
        wait_until(lambda: bool(errors), "the error")
    assert isinstance(errors[0], DeliveryError)


def test_a_scope_that_is_discarded_ends_the_wait(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, **NEVER) as producer, waiting(producer, numbers(range(100))) as (scope, errors):
        scope.discard()
    assert isinstance(errors[0], UsageError)
    assert "discarded during an append" in errors[0].message


def test_an_interrupt_ends_the_wait_and_the_next_append_does_not_pay_for_it(cluster: RecordingBroker) -> None:
    # A process in the background may ignore the signal, and would then wait for five minutes.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _interrupt_an_append(cluster)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_an_append(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, max_bytes_per_second=1000) as producer:
        with pytest.raises(KeyboardInterrupt), producer.scope() as scope:
            scope.append("t", numbers([0], width=300_000))  # five minutes' worth
            timer = threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
            timer.start()
            scope.append("t", numbers([1], width=10_000))
        timer.join()
        assert figure(producer, "rate-limit-wait-time-ns-total") < 60e9


@pytest.mark.fault("rate", "a rate limit")
def test_a_transaction_whose_records_wait_for_longer_than_it_may_be_open_fails_with_the_cause(broker: EmbeddedBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transaction.timeout.ms": 3000, "linger.ms": 0}
    with Producer({**settings, "max.records.per.second": 4}, transactional=True) as producer:
        with pytest.raises(TransactionAbortableError) as raised, producer.transaction("slow") as scope:
            scope.append("t", numbers(range(100)))
        assert "open for longer than transaction.timeout.ms (3 s)" in raised.value.message
        assert "max.records.per.second" in raised.value.message
        assert raised.value.facts["transactional_id"] == "slow"
        with producer.transaction("slow") as scope:  # the producer lives on
            scope.append("t", numbers([1]))
            assert scope.prepare() is not None


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def test_interceptors_see_an_append_once_and_learn_of_each_row_once(
    cluster: RecordingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording()
    told: list[int] = []
    completion_for = ColumnsInterception.completion_for

    def noted(interception: ColumnsInterception, rows: Sequence[int]) -> ColumnsThunk:
        told.extend(rows)
        return completion_for(interception, rows)

    monkeypatch.setattr(ColumnsInterception, "completion_for", noted)
    settings = {"interceptor_classes": [recording], "max_records_per_second": 40}
    with producer_on(cluster.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(35)))
    assert len(recording.sent_columns) == 1
    assert recording.rows(None) == 35
    assert told == list(range(35))
    places = sorted((metadata.base_offset, metadata.num_records) for metadata, _ in recording.column_ends)
    assert [offset for offset, _ in places] == [sum(count for _, count in places[:end]) for end in range(len(places))]


# Brokers whose quota is exceeded ask for pauses (KIP-219): the client keeps them, counts them, and says what takes so long


PAUSE_MS = 700
QUOTA = "exceeds a quota (producer_byte_rate or request_percentage of its user or of client.id 'spark-kafka-sink')"


def test_pauses_are_in_the_report_and_in_its_one_line(cluster: RecordingBroker) -> None:
    cluster.faults.throttle(ApiKey.PRODUCE, 300)
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        for value in range(3):
            scope.append("t", numbers([value]))
            scope.flush(10)
        report = scope.report()
        assert report.throttled_ms == 300
        assert "throttled by broker quotas for 0.3 s" in repr(report)
        assert figure(producer, "produce-throttle-time-max") == 300


@pytest.mark.fault("produce answers", "throttling")
@pytest.mark.fault("rate", "a broker's quota is exceeded (KIP-219)")
def test_a_pause_is_that_of_one_broker_only(cluster2: RecordingBroker) -> None:
    cluster2.topic("u", leaders=[2])
    with producer_on(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        send(producer, numbers([0]), topic="u")
        cluster2.faults.throttle(ApiKey.PRODUCE, 60_000, broker=1)
        send(producer, numbers([1]))
        assert send(producer, numbers([1]), topic="u") == 1
        with failing_scope(producer) as scope:
            scope.append("t", numbers([2]))
            with pytest.raises(FlushTimeoutError, match=r"broker 1 .* throttles this client for another 5\d\.\d s"):
                scope.flush(0.5)
    assert cluster2.values("u") == [0, 1]
    assert cluster2.values() == [0, 1]


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN])
def test_requests_of_transactions_ask_for_pauses_too_and_wait_for_them(broker: EmbeddedBroker, api: ApiKey) -> None:
    broker.faults.throttle(api, PAUSE_MS)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "throttled", "linger.ms": 0}
    with Producer(settings) as producer:
        begun = time.monotonic()
        producer.init_transactions(20)
        for value in (b"0", b"1"):
            producer.begin_transaction()
            producer.send("t", value)
            producer.commit_transaction(20)
        assert time.monotonic() - begun > PAUSE_MS / 1000 - 0.1


def test_a_call_of_a_transaction_that_times_out_in_a_pause_says_so(broker: EmbeddedBroker) -> None:
    broker.faults.throttle(ApiKey.INIT_PRODUCER_ID, 60_000)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "throttled", "max.block.ms": 1000}
    with (
        pytest.raises(TransactionTimeoutError, match=r"throttles this client for another 5\d\.\d s, because"),
        Producer(settings) as producer,
    ):
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("t", 0): 1}, "a-group")


def test_metadata_is_not_asked_for_during_a_pause(cluster: RecordingBroker) -> None:
    cluster.topic("u")
    asked = cluster.faults.watch(ApiKey.METADATA)
    with producer_on(cluster.bootstrap_servers) as producer:
        cluster.faults.throttle(ApiKey.PRODUCE, PAUSE_MS)
        begun = time.monotonic()  # before the pause begins, so that whoever keeps it is later than its end
        send(producer, numbers([0]))
        before = asked.hits
        assert len(producer.partitions_for("u")) == 1
        assert time.monotonic() - begun > PAUSE_MS / 1000
        assert asked.hits == before + 1


@pytest.mark.fault("rate", "a broker's quota is exceeded (KIP-219)")
def test_records_that_expire_in_a_pause_say_which_quota_and_what_to_do(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=2500, delivery_timeout_ms=2500) as producer:
        send(producer, numbers([0]))
        cluster.faults.throttle(ApiKey.PRODUCE, 60_000)
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            scope.flush(10)
            scope.append("t", numbers([2]))
            with pytest.raises(DeliveryError) as raised:
                scope.flush(20)
    cause = raised.value.__cause__
    assert isinstance(cause, DeliveryTimeoutError)
    assert "never sent" in cause.message
    assert QUOTA in cause.message
    assert "asked for pauses of 60.0 s" in cause.message
    assert cause.message.endswith("or set max.bytes.per.second to less than the quota, or raise delivery.timeout.ms")
    assert cluster.values() == [0, 1]


def test_an_append_that_finds_no_memory_in_a_pause_says_so(cluster: RecordingBroker) -> None:
    size = 200_000
    with producer_on(cluster.bootstrap_servers, buffer_memory=3 * size, max_block_ms=500) as producer:
        meet(producer, "t")
        send(producer, numbers([0]))
        cluster.faults.throttle(ApiKey.PRODUCE, 60_000)
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1], width=size))
            scope.flush(10)
            with pytest.raises(
                BufferExhaustedError, match=r"throttles this client for another 5\d\.\d s, because it exceeds a quota"
            ):
                for value in range(2, 9):
                    scope.append("t", numbers([value], width=size))


def test_a_long_pause_is_logged_once_with_its_broker(cluster: RecordingBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger=outage_log.__name__)
    with producer_on(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster.faults.throttle(ApiKey.PRODUCE, 60_000)
        send(producer, numbers([1]))
    (line,) = [record.getMessage() for record in caplog.records if record.name == outage_log.__name__]
    assert f"broker 1 ({cluster.address(1)}) throttles this client, because it {QUOTA}" in line
