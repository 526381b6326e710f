"""What becomes of batches, of those around them and of the producer, for every answer a broker can give to Produce."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from spark_kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    DeliveryError,
    DeliveryTimeoutError,
    UnsupportedVersionError,
)
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.apis.produce import ProduceRequest, ProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from tests.faults.conftest import check_numbers
from tests.faults.producing import failing_scope, figure, numbers, one_by_one
from tests.faults.recording_broker import (
    RecordingBroker,
    batches_of,
    carries,
    numbers_in,
    of_partitions,
    says,
)
from tests.kafka.proxy import TcpProxy
from tests.waiting import wait_until

E = ErrorCode
RETRIED = [3, 5, 6, 9, 13, 56, 74, 100, 103, 2, 7, 19, 20, 89, 14, 15, 16, 51]
MAYBE_STORED = [7, 13, 20]
FAILED = [10, -1, 8, 17, 18, 21, 32, 42, 43, 76, 87, 29, 47, 48, 120, 1234]
FATAL = [31, 35, 49, 53, 90]


def epoch_of(body: ProduceRequest) -> int:
    return next(batch.producer_epoch for _, _, batch in batches_of(body))


def send(cluster: RecordingBroker, values: Iterable[int], **settings: object) -> DeliveryReport:
    with one_by_one(cluster.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers(values))
        scope.flush(10)
        return scope.report()


@pytest.mark.fault("error codes", "2, 7, 19, 20, 89: retried")
@pytest.mark.fault("error codes", "3, 5, 6, 9, 13, 56, 74, 100, 103: retried with fresh metadata")
@pytest.mark.fault("produce answers", "REQUEST_TIMED_OUT of a batch that was or was not stored")
@pytest.mark.fault("produce answers", "each code, once and twice")
@pytest.mark.parametrize("code", RETRIED)
def test_passing_trouble_is_retried_until_it_has_passed(cluster: RecordingBroker, code: int) -> None:
    """Once and twice."""
    cluster.faults.fail(ApiKey.PRODUCE, code, when=carries(0))
    cluster.faults.fail(ApiKey.PRODUCE, code, times=2, when=carries(2))
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(6)))
        scope.flush(10)
        report = scope.report()
    assert cluster.values() == list(range(6))
    assert report.records == 6
    assert report.errors[E(code).name] == 3
    assert (len(cluster.attempts(0)), len(cluster.attempts(2))) == (2, 3)


@pytest.mark.fault("produce answers", "REQUEST_TIMED_OUT of a batch that was or was not stored")
@pytest.mark.parametrize("code", MAYBE_STORED)
def test_what_was_stored_although_an_error_came_is_stored_once(cluster: RecordingBroker, code: int) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, code, applied=True, when=carries(0))
    cluster.faults.fail(ApiKey.PRODUCE, code, applied=True, times=2, when=carries(2))
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(6)))
        scope.flush(10)
        report = scope.report()
    assert cluster.values() == list(range(6))
    assert (report.partitions["t", 0].first_offset, report.partitions["t", 0].last_offset) == (0, 5)


@pytest.mark.fault("error codes", "-1, 8, 17, 18, 21, 29, 32, 42, 43, 76, 87: the batch fails, a transaction can only be aborted")
@pytest.mark.fault("produce answers", "an unknown code")
@pytest.mark.fault("produce answers", "each code, once and twice")
@pytest.mark.parametrize("code", FAILED)
def test_what_no_retry_mends_fails_alone_and_the_rest_is_delivered(cluster: RecordingBroker, code: int) -> None:
    failing = [2, 4]
    cluster.faults.fail(ApiKey.PRODUCE, code, message="because", times=len(failing), when=carries(*failing))
    with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers(range(6)))
        wait_until(lambda: cluster.values() == [n for n in range(6) if n not in failing], "the rest stored")
        name = "UNKNOWN_ERROR_CODE_1234" if code == 1234 else E(code).name
        with pytest.raises(DeliveryError, match=rf"topic t partition 0: the broker rejected 1 record: {name}: because") as raised:
            scope.flush(10)
        cause = raised.value.__cause__
    assert isinstance(cause, BrokerError)
    known = {"topic": "t", "partition": 0, "error_code": code, "error": name}
    assert {fact: value for fact, value in cause.facts.items() if fact in known} == known
    assert [len(cluster.attempts(value)) for value in failing] == [1] * len(failing)


@pytest.mark.fault("error codes", "31, 35, 49, 53, 90: fatal")
@pytest.mark.fault("produce answers", "each code, once and twice")
@pytest.mark.parametrize("code", FATAL)
def test_what_is_about_the_producer_ends_it(cluster: RecordingBroker, code: int) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, code, times=2, when=lambda body: numbers_in(body) != [0])
    producer = one_by_one(cluster.bootstrap_servers)
    with failing_scope(producer) as scope:
        scope.append("t", numbers(range(6)))
        with pytest.raises(DeliveryError, match=E(code).name):
            scope.flush(10)
        wait_until(lambda: producer.closed, "its end")
        with pytest.raises(BrokerError, match=f"the producer cannot continue: {E(code).name}"):
            producer.scope()
        report = scope.report()
    producer.close(10)
    assert report.records == 1
    assert cluster.values()[:1] == [0]


@pytest.mark.fault("sequence", "the first of five fails for good")
def test_the_first_of_five_fails_for_good_and_the_others_go_on_in_a_new_epoch(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, when=carries(1))
    cluster.faults.fail(ApiKey.PRODUCE, E.MESSAGE_TOO_LARGE, when=carries(1))
    with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        scope.append("t", numbers(range(1, 9)))
        wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
        held.remove()
        wait_until(lambda: cluster.values() == [0, *range(2, 9)], "all but the first")
        with pytest.raises(DeliveryError, match=r"MESSAGE_TOO_LARGE.*a single record exceeds the topic"):
            scope.flush(10)
    assert [cluster.attempts(value)[-1].numbers for value in (0, 2, 3, 8)] == [(0, 0), (1, 0), (1, 1), (1, 6)]


@pytest.mark.fault("sequence", "the first of five fails for good")
def test_when_the_epochs_are_used_up_the_others_go_on_under_another_producer_id(cluster: RecordingBroker) -> None:
    cluster.faults.alter(ApiKey.INIT_PRODUCER_ID, lambda body, answer: replace(answer, producer_epoch=2**15 - 1))
    held = cluster.faults.hold(ApiKey.PRODUCE, when=carries(1))
    cluster.faults.fail(ApiKey.PRODUCE, E.MESSAGE_TOO_LARGE, when=carries(1))
    with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        scope.append("t", numbers(range(1, 6)))
        wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
        held.remove()
        wait_until(lambda: cluster.values() == [0, *range(2, 6)], "all but the first")
    assert cluster.faults.seen(ApiKey.INIT_PRODUCER_ID) == 2
    assert [cluster.attempts(value)[-1].numbers for value in (0, 2, 5)] == [(2**15 - 1, 0), (0, 0), (0, 3)]


@pytest.mark.fault("produce answers", "a partition missing in the answer")
@pytest.mark.parametrize("stored", [False, True])
def test_a_partition_that_the_answer_does_not_name_is_asked_again(cluster: RecordingBroker, stored: bool) -> None:
    if stored:
        cluster.faults.alter(ApiKey.PRODUCE, of_partitions(lambda said: []), when=carries(2))
    else:
        cluster.faults.answer(ApiKey.PRODUCE, lambda body: ProduceResponse(), when=carries(2))
    assert send(cluster, range(6)).records == 6
    assert cluster.values() == list(range(6))


@pytest.mark.fault("produce answers", "a partition twice in the answer")
def test_an_answer_that_names_a_partition_twice_counts_once(cluster: RecordingBroker) -> None:
    cluster.faults.alter(ApiKey.PRODUCE, of_partitions(lambda said: [said, said]), when=carries(2))
    assert send(cluster, range(6)).records == 6
    assert len(cluster.attempts(2)) == 1


@pytest.mark.fault("error codes", "46 DUPLICATE_SEQUENCE_NUMBER: success without an offset")
@pytest.mark.fault("sequence", "DUPLICATE_SEQUENCE_NUMBER is success")
@pytest.mark.parametrize("values", [[7], [7, 8]])
def test_duplicate_sequence_is_success_without_an_offset(cluster: RecordingBroker, values: list[int]) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, E.DUPLICATE_SEQUENCE_NUMBER, applied=True, times=None)
    report = send(cluster, values)
    assert (report.records, report.errors) == (len(values), {})
    assert (report.partitions["t", 0].first_offset, report.partitions["t", 0].last_offset) == (-1, -1)
    assert cluster.values() == values
    assert len(cluster.received) == len(values)


@pytest.mark.fault(
    "error codes", "45 OUT_OF_ORDER_SEQUENCE_NUMBER: retried in turn, then a new epoch; a transaction can only be aborted"
)
@pytest.mark.fault("sequence", "answers out of order")
def test_a_refused_batch_behind_a_lost_one_waits_for_its_turn(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, E.NOT_ENOUGH_REPLICAS, times=2, when=carries(1))
    send(cluster, [0])
    assert send(cluster, range(1, 6)).records == 5
    assert cluster.values() == list(range(6))
    assert {received.batch.producer_epoch for received in cluster.received} == {0}


@pytest.mark.fault("error codes", "59 UNKNOWN_PRODUCER_ID: a new epoch; a transaction can only be aborted")
@pytest.mark.fault(
    "error codes", "45 OUT_OF_ORDER_SEQUENCE_NUMBER: retried in turn, then a new epoch; a transaction can only be aborted"
)
@pytest.mark.fault("sequence", "UNKNOWN_PRODUCER_ID with each kind of log start")
@pytest.mark.parametrize(
    ("code", "log_start_offset"),
    [
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0),
        (E.UNKNOWN_PRODUCER_ID, 0),  # nothing was deleted: the broker's producer expired
        (E.UNKNOWN_PRODUCER_ID, 1),  # retention has passed what was acked
    ],
)
def test_a_broker_that_lost_count_gets_a_new_epoch(cluster: RecordingBroker, code: int, log_start_offset: int) -> None:
    """It refuses what comes next by the producer's count, and would do so for ever. Here it loses count twice."""
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        answer = says(code, log_start_offset=log_start_offset)
        cluster.faults.answer(ApiKey.PRODUCE, answer, times=None, when=lambda body: epoch_of(body) < 2)
        scope.append("t", numbers(range(1, 6)))
        scope.flush(10)
    assert cluster.values() == list(range(6))
    assert [cluster.attempts(value)[-1].numbers for value in range(1, 6)] == [(2, n) for n in range(5)]


def test_a_batch_whose_answers_stay_lost_is_not_left_behind_by_more_than_a_broker_remembers(cluster: RecordingBroker) -> None:
    """A broker knows a producer's last five batches in a partition: behind a sixth it would take the first for a new one."""
    cluster.faults.fail(ApiKey.PRODUCE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, applied=True, times=6, when=carries(1))
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        scope.append("t", numbers(range(1, 40)))
        scope.flush(10)
        assert scope.report().errors == {"NOT_ENOUGH_REPLICAS_AFTER_APPEND": 6}
    assert cluster.values() == list(range(40))


@pytest.mark.fault("sequence", "UNKNOWN_PRODUCER_ID with each kind of log start")
def test_unknown_producer_without_a_log_start_is_asked_until_the_broker_knows(cluster: RecordingBroker) -> None:
    send(cluster, [0])
    cluster.faults.answer(ApiKey.PRODUCE, says(E.UNKNOWN_PRODUCER_ID, log_start_offset=-1), times=2)
    assert send(cluster, [1]).records == 1
    assert [received.numbers for received in cluster.attempts(1)] == [(0, 0)] * 3


def test_a_batch_that_may_not_be_written_fails_at_once_and_says_what_to_grant(cluster: RecordingBroker) -> None:
    refused = cluster.faults.fail(ApiKey.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, times=None)
    wanted = r"topic t partition 0: .*TOPIC_AUTHORIZATION_FAILED; User:ANONYMOUS is not authorized for Write on topic t; to grant"
    with pytest.raises(DeliveryError, match=wanted) as caught:
        send(cluster, [0])
    assert refused.hits == 1
    cause = caught.value.__cause__
    assert isinstance(cause, AuthorizationError)
    command = f"kafka-acls --bootstrap-server {cluster.bootstrap_servers} --add --allow-principal User:ANONYMOUS"
    assert cause.facts["acl"] == f"{command} --operation Write --topic t"


def give_no_producer_ids(cluster: RecordingBroker) -> None:
    def change(body: ApiVersionsRequest, answer: ApiVersionsResponse) -> ApiVersionsResponse:
        return replace(answer, api_keys=[each for each in answer.api_keys if each.api_key != ApiKey.INIT_PRODUCER_ID])

    cluster.faults.alter(ApiKey.API_VERSIONS, change, times=None)


def test_a_broker_that_gives_no_producer_ids_ends_the_producer_at_once_and_the_error_names_the_way_out(
    cluster: RecordingBroker,
) -> None:
    """Some gateways that speak Kafka's protocol have no InitProducerId."""
    give_no_producer_ids(cluster)
    wanted = r"does not support INIT_PRODUCER_ID: .*kafka\.enable\.idempotence=false"
    with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([1]))
        with pytest.raises(DeliveryError, match=wanted) as caught:
            scope.flush(10)
        assert isinstance(caught.value.__cause__, UnsupportedVersionError)
        with pytest.raises(UnsupportedVersionError, match=wanted):
            producer.scope()


def test_without_idempotence_no_producer_id_is_needed(cluster: RecordingBroker) -> None:
    give_no_producer_ids(cluster)
    assert send(cluster, [1], enable_idempotence=False).records == 1
    assert cluster.values() == [1]


@pytest.mark.parametrize("code", [E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT])
def test_a_producer_id_that_is_not_there_yet_is_asked_for_again(cluster: RecordingBroker, code: int) -> None:
    cluster.faults.fail(ApiKey.INIT_PRODUCER_ID, code, times=2)
    assert send(cluster, range(3)).records == 3


# delivery.timeout.ms


@pytest.mark.fault("sequence", "delivery timeout in flight: the numbers are never used again")
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.usefixtures("patient_requests")
def test_a_batch_that_expires_in_flight_leaves_its_numbers_to_nobody(cluster: RecordingBroker, stored: bool) -> None:
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=2000, delivery_timeout_ms=2000) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([0]))
            scope.flush(10)
            held = cluster.faults.hold(ApiKey.PRODUCE, applied=stored)
            if not stored:
                cluster.faults.fail(ApiKey.PRODUCE, E.NOT_ENOUGH_REPLICAS, when=carries(1))
            scope.append("t", numbers([1]))
            with pytest.raises(DeliveryError, match=r"sent 1 time, may have been stored; last error: no response yet") as raised:
                scope.flush(10)
            assert isinstance(raised.value.__cause__, DeliveryTimeoutError)
            assert (scope.report().records, len(cluster.attempts(1))) == (1, 1)
        held.remove()
        with producer.scope() as scope:
            scope.append("t", numbers(range(2, 5)))
            scope.flush(10)
            assert scope.report().records == 3
    assert cluster.values() == [0, *([1] if stored else []), 2, 3, 4]
    assert cluster.attempts(2)[-1].numbers == ((0, 2) if stored else (1, 0))


@pytest.mark.fault("sequence", "delivery timeout in flight: the numbers are never used again")
@pytest.mark.usefixtures("patient_requests")
def test_after_a_batch_whose_answer_never_came_those_behind_it_are_stored_once(proxy: TcpProxy) -> None:
    """All three are stored, but their answers are lost, and their time is over before they are asked again."""
    with RecordingBroker(advertised={1: ("127.0.0.1", proxy.port)}) as cluster:
        proxy.forward_to(cluster.address(1))
        cluster.topic()
        with one_by_one(cluster.bootstrap_servers, request_timeout_ms=2000, delivery_timeout_ms=2000) as producer:
            with failing_scope(producer) as scope:
                scope.append("t", numbers([0]))
                scope.flush(10)
                proxy.black_hole("to_client")
                scope.append("t", numbers(range(1, 4)))
                wait_until(lambda: len(cluster.attempts(3)) == 1, "all three at the broker")
                with pytest.raises(DeliveryError, match=r"delivery\.timeout\.ms"):
                    scope.flush(10)
            proxy.heal()
            proxy.cut()
            with producer.scope() as scope:
                scope.append("t", numbers([4]))
                scope.flush(10)
        assert cluster.values() == [0, 1, 2, 3, 4]
    check_numbers(cluster)


@pytest.mark.fault("sequence", "a batch that times out and is then refused")
@pytest.mark.parametrize("stored", [True, False])
def test_a_batch_that_timed_out_and_is_then_refused_fails_and_what_comes_late_is_not_stored_too(
    cluster: RecordingBroker, stored: bool
) -> None:
    """The first try was stored, or arrives when the others are there already; the program sends what has failed again."""
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=500) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([0]))
            scope.flush(10)
            held = cluster.faults.hold(ApiKey.PRODUCE, applied=stored, times=1)
            refused = cluster.faults.fail(
                ApiKey.PRODUCE,
                E.INVALID_PRODUCER_EPOCH,
                times=1,
                when=lambda body: 1 in numbers_in(body) and len(cluster.attempts(1)) == 2,  # the second has been noted before
            )
            scope.append("t", numbers([1]))
            with pytest.raises(DeliveryError, match="INVALID_PRODUCER_EPOCH"):
                scope.flush(10)
            assert refused.hits == 1
            assert scope.report().records == 1
        with producer.scope() as scope:
            scope.append("t", numbers([1, 2, 3]))
            scope.flush(10)
            assert scope.report().records == 3
        held.remove()
        with producer.scope() as scope:
            scope.append("t", numbers([4]))
            scope.flush(10)
    assert cluster.values() == [0, *([1] if stored else []), 1, 2, 3, 4]
