"""A login that a broker rejects: whoever waits for that broker hears of it at once, and the next use tries again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.errors import AuthenticationError, DeliveryError, TransactionAbortableError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.client.sasl import LOGIN, PASSWORD, USER
from tests.faults.producing import QUICK, failing_scope, figure, numbers, send
from tests.faults.recording_broker import CONFIG, RecordingBroker
from tests.kafka.ports import free_ports
from tests.producer.inside import leader_known_to
from tests.waiting import HOUR_MS, wait_until

"""An attempt takes some ms. max.block.ms, delivery.timeout.ms and the timeouts of the calls are 30 s and more."""


@pytest.fixture
def cluster() -> Iterator[RecordingBroker]:
    """Two brokers with logins; broker 2 leads the one partition of `t`."""
    config = replace(CONFIG, sasl_users={USER: PASSWORD}, connection_failed_authentication_delay_ms=10)
    with RecordingBroker(2, config=config) as made:
        made.topic(leaders=(2,))
        yield made


def producer_of(broker: EmbeddedBroker, **settings: object) -> Producer:
    """A producer whose only bootstrap server is broker 1."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    servers = {"bootstrap.servers": broker.address(1), "max.block.ms": HOUR_MS}
    return Producer({**QUICK, **LOGIN, **servers, **options})


def rejecting(broker: EmbeddedBroker, node_id: int | None = None, when: Callable[[object], bool] = lambda _: True) -> Fault:
    """Every login is rejected, until the fault is removed."""
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    return broker.faults.fail(ApiKey.SASL_AUTHENTICATE, code, message="Account locked", times=None, broker=node_id, when=when)


def test_an_append_that_waits_for_metadata_fails_with_the_brokers_words(cluster: RecordingBroker) -> None:
    rejected = rejecting(cluster)
    with producer_of(cluster) as producer:
        with producer.scope() as scope:
            for attempt in (1, 2):
                with pytest.raises(AuthenticationError) as raised:
                    scope.append("t", numbers([1]))
                assert attempt <= rejected.hits <= attempt + 1, "one for each append, and one at the start"
        text = str(raised.value)
        assert text.startswith("[AUTHENTICATION] topic t: no broker can be asked for metadata: bootstrap server")
        assert "SASL login with PLAIN as user 'alice' failed: SaslAuthenticate failed with SASL_AUTHENTICATION_FAILED." in text
        assert raised.value.facts["broker"] == cluster.address(1)
        assert PASSWORD not in text
        assert str(pickle.loads(pickle.dumps(raised.value))) == text
        rejected.remove()
        assert send(producer, numbers([1])) == 1


@pytest.mark.fault("security", "wrong password: fatal, no storm of retries")
def test_a_wrong_password_is_tried_once_for_each_append(cluster: RecordingBroker) -> None:
    with producer_of(cluster, sasl_password="wrong-word") as producer, producer.scope() as scope:
        tried = []
        for _ in range(3):
            with pytest.raises(AuthenticationError) as raised:
                scope.append("t", numbers([1]))
            wait_until(lambda: figure(producer, "connection-count") == 0, "the end of the connection")
            tried.append(cluster.faults.seen(ApiKey.SASL_AUTHENTICATE))
        assert tried == [tried[0], tried[0] + 1, tried[0] + 2]
        assert "wrong-word" not in str(raised.value)


def test_records_for_a_broker_that_rejects_the_login_fail_at_once_and_others_do_not(cluster: RecordingBroker) -> None:
    cluster.topic("elsewhere", leaders=(1,))
    rejected = rejecting(cluster, 2)
    with producer_of(cluster) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            with pytest.raises(DeliveryError) as raised:
                scope.flush(30)
        cause = raised.value.__cause__
        assert isinstance(cause, AuthenticationError)
        assert cause.message.startswith("topic t partition 0: 1 record was not sent: broker 2")
        assert "SASL_AUTHENTICATION_FAILED" in str(raised.value)
        assert (cause.facts["topic"], cause.facts["partition"]) == ("t", 0)
        tried = rejected.hits
        assert tried <= 2, "one for the records, and perhaps one for metadata"
        assert send(producer, numbers([2]), "elsewhere") == 1
        assert rejected.hits == tried, "nothing is to be sent there any more"
        rejected.remove()
        assert send(producer, numbers([3])) == 1
    assert cluster.values() == [3]


def test_records_that_wait_for_a_producer_id_fail_at_once(cluster: RecordingBroker) -> None:
    logins = count()
    rejected = rejecting(cluster, when=lambda _: next(logins) > 0)  # all but that of the bootstrap connection
    with producer_of(cluster) as producer:
        producer.partitions_for("t")
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            with pytest.raises(DeliveryError, match="SASL_AUTHENTICATION_FAILED"):
                scope.flush(30)
        rejected.remove()
        assert send(producer, numbers([2])) == 1
    assert cluster.values() == [2]


def test_records_that_may_have_been_stored_are_sent_again_and_those_behind_them_fail(cluster: RecordingBroker) -> None:
    with producer_of(cluster, batch_size=1) as producer:
        assert send(producer, numbers([0])) == 1
        held = cluster.faults.hold(ApiKey.PRODUCE, applied=True)
        with producer.scope() as first, failing_scope(producer) as second:
            first.append("t", numbers([1]))
            held.wait()
            rejected = rejecting(cluster, 2)
            lost = cluster.faults.unreachable(2)
            lost.remove()
            wait_until(lambda: rejected.hits >= 1, "a rejected login")
            second.append("t", numbers([2]))
            with pytest.raises(DeliveryError, match="SASL_AUTHENTICATION_FAILED"):
                second.flush(30)
            rejected.remove()
            first.flush(30)
            assert first.report().records == 1
    assert cluster.values() == [0, 1]


def test_another_leader_is_asked_for_where_the_last_one_rejects_the_login(cluster: RecordingBroker) -> None:
    with producer_of(cluster) as producer:
        assert send(producer, numbers([1])) == 1
        rejected = rejecting(cluster, 2)
        with cluster.faults.hold(ApiKey.METADATA, applied=True) as made:
            cluster.faults.unreachable(2).remove()
            made.wait()  # an answer that still names broker 2, which is given after the move
            cluster.move_leader("t", 0, 1)
        with failing_scope(producer) as scope:
            scope.append("t", numbers([2]))
            with pytest.raises(DeliveryError, match="SASL_AUTHENTICATION_FAILED"):
                scope.flush(30)
        assert rejected.hits >= 1
        wait_until(lambda: leader_known_to(producer, "t") == 1, "metadata that names broker 1")
        assert send(producer, numbers([3])) == 1
    assert cluster.values() == [1, 3]


def test_one_bootstrap_server_that_is_away_is_no_rejected_login(cluster: RecordingBroker) -> None:
    (nobody,) = free_ports(1)
    servers = f"127.0.0.1:{nobody},{cluster.address(1)}"
    with producer_of(cluster, bootstrap_servers=servers) as producer:
        assert send(producer, numbers([1])) == 1


def test_one_of_several_bootstrap_servers_that_rejects_the_login_is_enough(cluster: RecordingBroker) -> None:
    rejecting(cluster)
    servers = f"{cluster.address(1)},{cluster.address(2)}"
    with producer_of(cluster, bootstrap_servers=servers) as producer, pytest.raises(AuthenticationError):
        producer.partitions_for("t")
    assert cluster.faults.seen(ApiKey.SASL_AUTHENTICATE) <= 2, "one for the call, and one at the start"


def test_a_transaction_that_cannot_begin_can_be_begun_later(cluster: RecordingBroker) -> None:
    rejected = rejecting(cluster)
    with producer_of(cluster, transactional_id="tx") as producer:
        with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
            producer.init_transactions(30)
        rejected.remove()
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.commit_transaction(30)


def test_an_open_transaction_whose_records_no_broker_takes_can_only_be_aborted(cluster: RecordingBroker) -> None:
    with producer_of(cluster, transactional_id="tx") as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.partitions_for("t")
        rejected = rejecting(cluster, 2)
        cluster.faults.unreachable(2).remove()
        producer.send("t", b"1")
        with pytest.raises(TransactionAbortableError, match="SASL_AUTHENTICATION_FAILED"):
            producer.commit_transaction(30)
        rejected.remove()
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.send("t", b"2")
        producer.commit_transaction(30)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("commit_transaction", "it is not known whether the transaction was committed"),
        ("abort_transaction", "could not be aborted"),
    ],
)
def test_a_transaction_whose_end_the_coordinator_cannot_be_told_any_more_has_an_unknown_one(
    cluster: RecordingBroker, how: str, told: str
) -> None:
    with producer_of(cluster, transactional_id="tx") as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send("t", b"1").result(30)
        held = cluster.faults.hold(ApiKey.END_TXN)
        with ThreadPoolExecutor(1) as pool:
            end = pool.submit(getattr(producer, how), 30)
            held.wait()
            rejecting(cluster)
            for node_id in cluster.broker_ids:
                cluster.faults.unreachable(node_id).remove()
            with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED") as raised:
                end.result(30)
        assert told in str(raised.value)
        assert raised.value.facts["transactional_id"] == "tx"
