"""Brokers that fall silent, topics that go away: what the log tells meanwhile, and what the errors say in the end."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    BrokerError,
    DeadlineError,
    DeliveryError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.sender import outage_log
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.producing import failing_scope, figure, numbers, one_by_one, producer_on, send
from tests.faults.recording_broker import RecordingBroker, throttles
from tests.kafka.ports import free_ports
from tests.kafka.witness import read_topic
from tests.waiting import HOUR_MS, until, wait_until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Nothing is told until a test says that all is in place: first answers and appends may take as long as they like.

    Then it is told at the second look at what waits: not of what waits for the first time, nor of what every look hears of.
    """
    monkeypatch.setattr(outage_log, "WARN_AFTER_MS", HOUR_MS)
    monkeypatch.setattr(outage_log, "LOOK_EVERY_MS", 50)

    def tell(after_ms: int = 1) -> None:
        monkeypatch.setattr(outage_log, "WARN_AFTER_MS", after_ms)

    return tell


@pytest.fixture
def looked_again(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Waits until the producer has looked so often that it would have told of what it tells of."""
    looks = list[int]()
    look = outage_log.SilenceWatch.look

    def counted(
        watch: outage_log.SilenceWatch, waiting: Collection[outage_log.Subject], now_ms: int
    ) -> list[tuple[outage_log.Subject, outage_log.News, int]]:
        looks.append(now_ms)
        return look(watch, waiting, now_ms)

    monkeypatch.setattr(outage_log.SilenceWatch, "look", counted)

    def wait() -> None:
        before = len(looks)
        wait_until(lambda: len(looks) > before + 3, "looks at what waits")

    return wait


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=outage_log.__name__)
    return caplog


def lines(told: pytest.LogCaptureFixture, level: int) -> list[str]:
    own = (record for record in told.records if record.name == outage_log.__name__ and record.levelno == level)
    return [record.getMessage() for record in own]


def warnings(told: pytest.LogCaptureFixture) -> list[str]:
    """How long something has been waiting, which on a busy machine is more than WARN_AFTER_MS, is N."""
    return [re.sub(r"\bfor \d+ s\b", "for N s", line) for line in lines(told, logging.WARNING)]


def why_not_flushed(scope: SendScope) -> str:
    with pytest.raises(DeadlineError) as caught:
        scope.flush(0.01)
    return caught.value.message


def test_a_broker_that_does_not_answer_is_told_of_once_whatever_waits_for_it(
    cluster: RecordingBroker, told: pytest.LogCaptureFixture, soon: Callable[..., None]
) -> None:
    cluster.topic("t", leaders=[1] * 8)
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        send(producer, numbers([0], 0))
        silence = cluster.faults.unreachable(1, black_hole=True)
        for partition in range(8):
            scope.append("t", numbers(range(10), partition))
        wait_until(lambda: figure(producer, "requests-in-flight") > 1, "requests that have no response")
        soon()
        wait_until(lambda: len(warnings(told)) > 0, "a warning")
        soon(HOUR_MS)  # an answer that is late is no second silence
        silence.remove()
        scope.flush(30)
        wait_until(lambda: len(lines(told, logging.INFO)) > 0, "its end")
    (warning,) = warnings(told)
    address = cluster.address(1)
    assert warning.startswith(f"broker 1 ({address}) has not responded for N s, and 80 records are waiting for it; ")
    assert warning.endswith("requests to it have no response")
    (over,) = lines(told, logging.INFO)
    assert over.startswith(f"broker 1 ({address}) responds again, after ")


def test_a_broker_that_cannot_be_reached_is_told_of_with_the_reason(
    cluster2: RecordingBroker, told: pytest.LogCaptureFixture, soon: Callable[..., None]
) -> None:
    cluster2.topic("t", leaders=[2])
    with one_by_one(cluster2.bootstrap_servers) as producer, producer.scope() as scope:
        send(producer, numbers([0]))
        address = cluster2.address(2)
        silence = cluster2.faults.unreachable(2)
        scope.append("t", numbers([1, 2]))
        until(lambda: why_not_flushed(scope), lambda why: "refused" in why, "a connection that is refused")
        soon()
        wait_until(lambda: len(warnings(told)) > 0, "a warning")
        silence.remove()
        scope.flush(30)
    assert warnings(told)[0].startswith(
        f"broker 2 ({address}) has not responded for N s, and 2 records are waiting for it; broker 2 "
    )
    assert "refused" in warnings(told)[0]


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "after linger.ms"])
def test_records_of_a_batch_that_is_not_full_are_told_of_when_the_broker_is_away(
    told: pytest.LogCaptureFixture, soon: Callable[..., None], flushed: bool
) -> None:
    linger_ms = HOUR_MS if flushed else 20
    with EmbeddedBroker() as broker, producer_on(broker.bootstrap_servers, linger_ms=linger_ms) as producer:
        broker.create_topic("t")
        send(producer, numbers([0]))
        with producer.scope() as scope:
            broker.kill(1)
            scope.append("t", numbers([1, 2]))
            if flushed:
                why_not_flushed(scope)
            soon()
            wait_until(lambda: len(warnings(told)) > 0, "a warning")
            broker.restart(1)
            scope.flush(30)
        assert scope.report().records == 2
    assert "broker 1" in warnings(told)[0]
    assert "2 records" in warnings(told)[0]


def test_nothing_is_told_of_records_that_may_linger(
    told: pytest.LogCaptureFixture, soon: Callable[..., None], looked_again: Callable[[], None]
) -> None:
    with EmbeddedBroker() as broker, producer_on(broker.bootstrap_servers, linger_ms=HOUR_MS) as producer:
        broker.create_topic("t")
        send(producer, numbers([0]))
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            soon()
            looked_again()
    assert told.messages == []


def test_a_transaction_that_finds_no_coordinator_is_told_of_while_it_waits(
    told: pytest.LogCaptureFixture, soon: Callable[..., None]
) -> None:
    (port,) = free_ports(1)
    settings = {"transactional_id": "its-own", "max_block_ms": 2000}
    soon()
    with producer_on(f"127.0.0.1:{port}", **settings) as producer, pytest.raises(TransactionTimeoutError):
        producer.init_transactions()
    assert warnings(told)[0].startswith(
        "transactional id its-own: a transaction has been waiting for N s; the transaction is not ready: "
    )
    assert len(warnings(told)) == 1


def test_nothing_is_told_of_a_broker_that_throttles(
    cluster: RecordingBroker, told: pytest.LogCaptureFixture, soon: Callable[..., None], looked_again: Callable[[], None]
) -> None:
    cluster.faults.alter(ApiKey.PRODUCE, throttles(HOUR_MS))
    with one_by_one(cluster.bootstrap_servers) as producer:
        assert send(producer, numbers([0])) == 1
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            soon()
            looked_again()
    assert not [line for line in told.messages if "waiting" in line], "so long a pause has a line of its own"


def test_a_broker_that_has_answered_is_not_said_to_be_silent_while_a_retry_waits(
    cluster: RecordingBroker, told: pytest.LogCaptureFixture, soon: Callable[..., None]
) -> None:
    with one_by_one(cluster.bootstrap_servers, retry_backoff_ms=1000, retry_backoff_max_ms=1000) as producer:
        send(producer, numbers([0]))  # so that only the retry waits, not the first look-up of the topic
        refusals = cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
        with producer.scope() as scope:
            scope.append("t", numbers([1]))
            wait_until(lambda: figure(producer, "record-retry-total") > 0, "a retry that waits")
            soon()
            wait_until(lambda: len(warnings(told)) > 0, "a warning")
            refusals.remove()
            scope.flush(30)
            assert scope.report().records == 1
    assert warnings(told)[0].startswith(f"1 record has been waiting for broker 1 ({cluster.address(1)}) for N s; ")
    assert not any("has not responded" in warning for warning in warnings(told))


# Topics that are deleted


def test_a_topic_that_is_deleted_under_a_task_is_told_of_and_the_error_says_what_to_do(
    cluster: RecordingBroker, told: pytest.LogCaptureFixture, soon: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_log, "WARN_EVERY_MS", 50)  # the first to be refused may be told of before the others
    limits = {"request_timeout_ms": 3000, "delivery_timeout_ms": 3000}
    with one_by_one(cluster.bootstrap_servers, **limits) as producer, failing_scope(producer) as scope:
        send(producer, numbers([0]))
        cluster.delete()
        scope.append("t", numbers([1, 2, 3]))
        soon()
        with pytest.raises(DeliveryError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*create the topic, or set auto\.create\.topics"):
            scope.flush(30)
    told_of_all = [
        line for line in warnings(told) if line.startswith("topic t: 3 records have been waiting for a leader for N s; ")
    ]
    assert "broker 1 " in told_of_all[0]
    assert "; create the topic, or set auto.create.topics.enable=true on the brokers" in told_of_all[0]


@pytest.mark.fault("metadata", "topic deleted and made again")
def test_records_of_partitions_that_a_topic_made_again_does_not_have_fail_and_the_others_are_stored(
    cluster: RecordingBroker,
) -> None:
    cluster.topic("t", leaders=[1] * 4)
    with one_by_one(cluster.bootstrap_servers, delivery_timeout_ms=60_000, request_timeout_ms=9_000) as producer:
        send(producer, numbers([0], 3))
        with failing_scope(producer) as kept, failing_scope(producer) as lost:
            cluster.topic("t", leaders=[1])
            kept.append("t", numbers([1], 0))
            lost.append("t", numbers([2, 3], 3))
            wanted = "topic t partition 3: 1 record failed, because the topic was deleted and recreated with 1 partition; "
            with pytest.raises(DeliveryError, match=wanted) as caught:
                lost.flush(30)
            kept.flush(20)
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.facts["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        send(producer, numbers([4], 0))
    assert cluster.values("t", 0) == [1, 4]


def test_of_two_brokers_both_are_asked_before_anything_fails_for_it() -> None:
    with EmbeddedBroker(2) as brokers, one_by_one(brokers.bootstrap_servers) as producer:
        brokers.create_topic("t", 4)
        send(producer, numbers([0], 3))
        with failing_scope(producer) as scope:
            brokers.cluster.delete_topic("t")
            brokers.create_topic("t", 2)
            scope.append("t", numbers([1], 3))
            with pytest.raises(DeliveryError, match=r"partition 3: .* recreated with 2 partitions"):
                scope.flush(30)


def test_a_transaction_with_records_for_such_a_partition_can_only_be_aborted() -> None:
    with EmbeddedBroker() as broker, producer_on(broker.bootstrap_servers, transactional_id="its-own") as producer:
        broker.create_topic("t", 4)
        producer.init_transactions()
        producer.partitions_for("t")
        broker.cluster.delete_topic("t")
        broker.create_topic("t", 1)
        producer.begin_transaction()
        future = producer.send("t", b"1", partition=3)
        with pytest.raises(BrokerError, match="recreated with 1 partition; "):
            future.result(30)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"2", partition=0)
        producer.commit_transaction()
        values = [record.value for record in read_topic(broker.direct_servers, "t", isolation_level="read_committed")]
    assert values == [b"2"]
