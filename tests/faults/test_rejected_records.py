"""INVALID_RECORD with record_errors: the named records fail with what the broker says of each, the others are stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import BrokerError, DeliveryError, KafkaSinkError
from spark_kafka_sink.producer.base.producer_record import RecordMetadata
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import BatchIndexAndErrorMessage, ProduceRequest, ProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, figure, numbers, producer_on, send
from tests.faults.recording_broker import RecordingBroker, batches_of, numbers_in, says
from tests.faults.test_sequences import check_numbers
from tests.kafka.dump_log import dump_log, records_of
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.tiers import whole_but
from tests.waiting import wait_until

E = ErrorCode
WIDTH = 90  # of a value: about 100 bytes a record
ONE_AT_A_TIME = {"enable_idempotence": "false", "max_in_flight_requests_per_connection": 1}


def reject(cluster: RecordingBroker, bad: Collection[int]) -> None:
    """As LogValidator does: the broker looks at each record of a batch that is not too large, and stores nothing of the batch."""

    def bad_rows(body: ProduceRequest) -> list[tuple[int, int]]:
        if any(batch.size > cluster.max_message_bytes() for _, _, batch in batches_of(body)):
            return []
        return [(row, number) for row, number in enumerate(numbers_in(body)) if number in bad]

    def answer(body: ProduceRequest) -> ProduceResponse:
        return named(E.INVALID_RECORD, *((row, f"{number} is bad") for row, number in bad_rows(body)))(body)

    cluster.faults.answer(ApiKey.PRODUCE, answer, times=None, when=lambda body: bool(bad_rows(body)))


def named(code: int, *errors: tuple[int, str], message: str | None = None) -> Callable[[ProduceRequest], ProduceResponse]:
    """An answer with record_errors."""
    return says(code, record_errors=[BatchIndexAndErrorMessage(*each) for each in errors], error_message=message)


@pytest.mark.fault("record", "INVALID_RECORD and INVALID_TIMESTAMP with record_errors")
@pytest.mark.parametrize(
    ("settings", "codec"),
    [({}, "zstd"), (ONE_AT_A_TIME, "none"), ({"retries": 0, "max_in_flight_requests_per_connection": 1}, "none")],
)
def test_only_the_named_records_fail(cluster: RecordingBroker, settings: dict[str, object], codec: str) -> None:
    reject(cluster, {3, 4, 9})
    with producer_on(cluster.bootstrap_servers, compression_type=codec, **settings) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers(range(10)))
        named = "record 3: 3 is bad; record 4: 4 is bad; record 9: 9 is bad; the topic rejects"
        with pytest.raises(
            DeliveryError, match=rf"^\[DELIVERY\] 3 records failed, .* 3 of 10 .*: INVALID_RECORD; {named}"
        ) as raised:
            scope.flush(10)
        wait_until(lambda: len(cluster.values()) == 7, "the others stored")
        report = scope.report()
    assert isinstance(raised.value.__cause__, BrokerError)
    assert cluster.values() == [0, 1, 2, 5, 6, 7, 8]
    assert (report.errors, report.retries) == ({"INVALID_RECORD": 1}, 0)
    assert [len(received.values) for received in cluster.received] == [10, 7]


def test_each_future_knows_what_became_of_its_own_record(cluster: RecordingBroker) -> None:
    reject(cluster, {0, 3, 4, 9})
    told: list[tuple[RecordMetadata, KafkaSinkError | None]] = []
    with producer_on(cluster.bootstrap_servers, linger_ms=100_000) as producer:
        futures = [producer.send("t", b"%d" % n, on_completion=lambda *both: told.append(both)) for n in range(10)]
        producer.flush(10)
        errors = [future.exception(0) for future in futures]
        offsets = [None if error else future.result(0).offset for future, error in zip(futures, errors, strict=True)]
    assert offsets == [None, 0, 1, None, None, 2, 3, 4, 5, None]
    texts = [error.message for error in errors if error is not None]
    assert [text.partition(";")[0] for text in texts] == [
        f"topic t partition 0: the broker rejected the record: INVALID_RECORD: {n} is bad" for n in (0, 3, 4, 9)
    ]
    assert [error for _, error in told if error is not None] == [error for error in errors if error is not None]
    assert [metadata.offset for metadata, error in told if error is None] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("code", [E.INVALID_RECORD, E.POLICY_VIOLATION])
def test_the_brokers_words_stay_one_printable_line(cluster: RecordingBroker, code: int) -> None:
    """Otherwise a broker, or a proxy in front of it, could forge lines of a log."""
    words = "bad\n[DELIVERY] forged\x1b[2J"
    errors = [(0, words)] if code == E.INVALID_RECORD else []
    cluster.faults.answer(ApiKey.PRODUCE, named(code, *errors, message=words), times=None)
    with producer_on(cluster.bootstrap_servers) as producer:
        error = producer.send("t", b"0").exception(10)
    assert error is not None
    assert "bad [DELIVERY] forged" in error.message
    assert error.message.isprintable()


@pytest.mark.parametrize("record_errors", [(), ((-1, "no such"), (10, "no such"))])
def test_where_no_record_of_the_batch_is_named_the_whole_batch_fails(
    cluster: RecordingBroker, record_errors: tuple[tuple[int, str], ...]
) -> None:
    cluster.faults.answer(ApiKey.PRODUCE, named(E.INVALID_RECORD, *record_errors, message="because"))
    with producer_on(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers(range(10)))
        with pytest.raises(
            DeliveryError, match=r"10 records failed, .*: the broker rejected 10 records: INVALID_RECORD: because"
        ):
            scope.flush(10)
    assert cluster.values() == []


def test_names_that_are_not_in_the_batch_are_passed_over_and_a_name_without_a_message_has_the_answers(
    cluster: RecordingBroker,
) -> None:
    errors = ((2, ""), (2, ""), (7, "no such"), (-2, "no such"))
    cluster.faults.answer(ApiKey.PRODUCE, named(E.INVALID_TIMESTAMP, *errors, message="because"))
    with producer_on(cluster.bootstrap_servers, linger_ms=100_000) as producer:
        futures = [producer.send("t", b"%d" % n) for n in range(5)]
        producer.flush(10)
        with pytest.raises(BrokerError, match="INVALID_TIMESTAMP: because; timestamps, in ms since 1970, are outside"):
            futures[2].result(0)
    assert cluster.values() == [0, 1, 3, 4]


@pytest.mark.parametrize("bad", [{1}, {1, 2, 3, 4, 5}, {2, 5}])
def test_of_five_in_flight_the_others_keep_their_order(cluster: RecordingBroker, bad: set[int]) -> None:
    """Batch n of five holds 10 n to 10 n + 9, of which 10 n + 4 is bad in some."""
    with producer_on(cluster.bootstrap_servers, batch_size=1100, linger_ms=20) as producer:
        assert send(producer, numbers([0])) == 1
        held = cluster.faults.hold(ApiKey.PRODUCE)
        reject(cluster, {10 * n + 4 for n in bad})
        with failing_scope(producer) as scope:
            scope.append("t", numbers(range(10, 60), width=WIDTH))
            wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
            held.remove()
            wait_until(lambda: len(cluster.values()) == 51 - len(bad), "the others stored")
            with pytest.raises(DeliveryError):
                scope.flush(10)
    assert cluster.values() == [0, *(n for n in range(10, 60) if n % 10 != 4 or n // 10 not in bad)]


def test_what_is_too_large_and_has_bad_records_goes_on_in_parts_without_them(cluster: RecordingBroker) -> None:
    cluster.topic(max_message_bytes=1000)
    reject(cluster, {0, 13, 14, 59})
    with producer_on(cluster.bootstrap_servers, batch_size=8000, linger_ms=100_000) as producer:
        futures = [producer.send("t", b"%0*d" % (WIDTH, n)) for n in range(60)]
        producer.flush(10)
        assert [n for n, future in enumerate(futures) if future.exception(0) is not None] == [0, 13, 14, 59]
    assert cluster.values() == [n for n in range(60) if n not in (0, 13, 14, 59)]


@pytest.mark.usefixtures("patient_requests")
def test_a_batch_that_expired_in_flight_is_not_sent_again_without_its_bad_records(cluster: RecordingBroker) -> None:
    settings = {"request_timeout_ms": 2000, "delivery_timeout_ms": 2000}
    with producer_on(cluster.bootstrap_servers, **settings) as producer:
        assert send(producer, numbers([0])) == 1
        held = cluster.faults.hold(ApiKey.PRODUCE)
        reject(cluster, {2})
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1, 2, 3]))
            with pytest.raises(DeliveryError, match="may have been stored"):
                scope.flush(10)
        held.remove()
        assert send(producer, numbers([4])) == 1
    assert cluster.values() == [0, 4]


@pytest.mark.fault("record", "INVALID_RECORD and INVALID_TIMESTAMP with record_errors")
@pytest.mark.parametrize(
    "settings", whole_but([{}, ONE_AT_A_TIME], [{}], "three seconds; test_only_the_named_records_fail has both")
)
def test_a_long_stream_with_many_bad_records_loses_only_those(cluster: RecordingBroker, settings: dict[str, object]) -> None:
    bad = set(range(0, 3000, 17))
    reject(cluster, bad)
    with producer_on(cluster.bootstrap_servers, batch_size=1100, **settings) as producer:
        futures = [producer.send("t", b"%0*d" % (WIDTH, n)) for n in range(3000)]
        producer.flush(120)
        assert {n for n, future in enumerate(futures) if future.exception(0) is not None} == bad
        offsets = [future.result(0).offset for n, future in enumerate(futures) if n not in bad]
    assert cluster.values() == [n for n in range(3000) if n not in bad]
    assert offsets == list(range(len(offsets)))


# Real Kafka


def test_with_many_batches_under_way_a_compacted_topic_has_the_rest_once_and_in_order(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    cluster = proxied_kafka.cluster
    topic = new_topic(1, on=cluster, config={"cleanup.policy": "compact"})
    with producer_on(cluster.bootstrap_servers, batch_size=300) as producer:
        producer.send(topic, b"0", b"k0").result(20)
        proxied_kafka.proxy.delay(0.02)  # so that there are five under way when one of them is refused
        futures = [producer.send(topic, b"%d" % n, b"k%d" % n if n % 40 else None) for n in range(1, 300)]
        producer.flush(60)
        failed = [n for n, future in enumerate(futures, 1) if future.exception(0) is not None]
    assert failed == list(range(40, 300, 40))
    batches = dump_log(cluster, 1, topic)
    assert [int(record.value or b"") for record in records_of(batches)] == [0, *(n for n in range(1, 300) if n % 40)]
    assert len({batch.producer_epoch for batch in batches}) > 1
    check_numbers(batches)


@pytest.mark.fault("record", "INVALID_RECORD and INVALID_TIMESTAMP with record_errors")
def test_a_topic_takes_all_whose_timestamps_are_within_its_bounds(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, config={"message.timestamp.before.max.ms": "3600000"})
    now = time.time_ns() // 1_000_000
    stamps = np.array([now - 7_200_000 if n in (0, 4) else now - n for n in range(6)], np.int64)
    columns = RecordColumns(6, value=pa.array([b"%d" % n for n in range(6)]), timestamp=stamps)
    with producer_on(kafka.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append(topic, columns)
        with pytest.raises(
            DeliveryError, match=r"the broker rejected 2 of 6 records: INVALID_TIMESTAMP: .*record 4: Timestamp \d+ of message"
        ):
            scope.flush(20)
        wait_until(lambda: scope.report().records == 4, "the others acked")
    read = [(record.value, record.timestamp) for record in read_topic(kafka.direct_servers, topic)]
    assert read == [(b"%d" % n, stamps[n]) for n in (1, 2, 3, 5)]
