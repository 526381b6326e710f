"""Transactions described, listed and ended by somebody who did not write them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import DeadlineError, OptionError
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, TransactionDescription, proof_of
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.exactly_once.opened import client_of, new_id, opened, soon, writer
from tests.kafka.brokers import Brokers
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import NewTopic, ProxiedKafka, embedded_in_make_test
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.tiers import whole_but
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def client(transaction_kafka: Kafka) -> Iterator[ClusterClient]:
    with client_of(transaction_kafka) as made:
        yield made


@pytest.fixture
def transactions(client: ClusterClient) -> TransactionClient:
    return TransactionClient(client)


@pytest.fixture
def topic(transaction_kafka: Kafka, new_topic: NewTopic) -> str:
    return new_topic(on=transaction_kafka)


def committed(kafka: Kafka, topic: str) -> list[str]:
    found = read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")
    return [(each.value or b"").decode() for each in found]


def until_settled(transactions: TransactionClient, handle: TransactionHandle) -> TransactionDescription:
    """Markers are written after EndTxn was answered."""
    identity = handle.transactional_id
    wait_until(lambda: transactions.describe([identity], soon())[identity].state.startswith("Complete"))
    return transactions.describe([identity], soon())[identity]


BOTH_IN_ALL = pytest.mark.parametrize(
    "transaction_version", whole_but([1, 2], [2], "seconds of Java each"), ids=["tv1", "tv2"], indirect=True
)


def test_an_open_transaction_is_described(transactions: TransactionClient, client: ClusterClient, topic: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    handle = opened(client, topic, "row", timeout_ms=45_000)
    unknown = new_id()
    described = transactions.describe([handle.transactional_id, unknown], soon())

    assert list(described) == [handle.transactional_id]
    said = described[handle.transactional_id]
    assert (said.state, said.producer_id, said.epoch, said.timeout_ms) == ("Ongoing", handle.producer_id, handle.epoch, 45_000)
    assert before_ms - 10 <= said.start_time_ms <= time.time_ns() // 1_000_000 + 10
    assert said.partitions == ((topic, "0"),)
    assert proof_of(handle, said) is Proof.OPEN
    transactions.end([handle], False, soon())


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_is_ended_by_who_did_not_write_it_and_that_is_proved_afterwards(
    transactions: TransactionClient, client: ClusterClient, transaction_kafka: Kafka, topic: str, commits: bool
) -> None:
    handle = opened(client, topic, "row")
    with client_of(transaction_kafka) as other:
        (ended,) = TransactionClient(other).end([handle], commits, soon()).values()
    at_once = transactions.describe([handle.transactional_id], soon())[handle.transactional_id]
    settled = until_settled(transactions, handle)

    assert ended.outcome is (Outcome.COMMITTED if commits else Outcome.ABORTED)
    assert proof_of(handle, at_once) is proof_of(handle, settled) is (Proof.COMMITTED if commits else Proof.ABORTED)
    assert settled.epoch == handle.epoch + (1 if handle.transaction_version == 2 else 0)
    wait_until(lambda: committed(transaction_kafka, topic) == (["row"] if commits else []))


def test_to_end_a_transaction_again_the_same_way_is_no_error(
    transactions: TransactionClient, client: ClusterClient, transaction_kafka: Kafka, topic: str
) -> None:
    handle = opened(client, topic, "row")
    outcomes = [transactions.end([handle], True, soon())[handle.transactional_id].outcome for _ in range(5)]

    assert outcomes == [Outcome.COMMITTED] * 5
    wait_until(lambda: committed(transaction_kafka, topic) == ["row"])


def test_to_commit_what_was_aborted_is_told_from_the_unknown(
    transactions: TransactionClient, client: ClusterClient, topic: str
) -> None:
    handle = opened(client, topic, "row")
    transactions.end([handle], False, soon())
    (ended,) = transactions.end_surely([handle], True, soon()).values()

    assert (ended.outcome, ended.error) == (Outcome.ABORTED, "INVALID_TXN_STATE")


@BOTH_IN_ALL
def test_what_timed_out_is_proved_to_be_aborted(transactions: TransactionClient, client: ClusterClient, topic: str) -> None:
    handle = opened(client, topic, "row", timeout_ms=2_000)  # brokers look for such transactions at any moment
    settled = until_settled(transactions, handle)
    (ended,) = transactions.end_surely([handle], True, soon()).values()

    assert (settled.state, settled.producer_id, settled.epoch) == ("CompleteAbort", handle.producer_id, handle.epoch + 1)
    assert proof_of(handle, settled) is Proof.ABORTED
    assert ended.outcome is Outcome.ABORTED
    assert ended.error == ("INVALID_TXN_STATE" if handle.transaction_version == 2 else "PRODUCER_FENCED")


@pytest.mark.parametrize("commits", [True, False])
def test_after_the_id_was_initialised_again_nothing_is_proved(
    transactions: TransactionClient, client: ClusterClient, topic: str, commits: bool
) -> None:
    handle = opened(client, topic, "row")
    transactions.end([handle], commits, soon())
    transactions.init_producer_id(handle.transactional_id, 60_000, soon())
    (ended,) = transactions.end_surely([handle], True, soon()).values()

    assert (ended.outcome, ended.error) == (Outcome.UNKNOWN, "PRODUCER_FENCED")


def test_what_is_fenced_while_it_is_open_cannot_be_committed(
    transactions: TransactionClient, client: ClusterClient, transaction_kafka: Kafka, topic: str
) -> None:
    handle = opened(client, topic, "row")
    producer_id, epoch = transactions.init_producer_id(handle.transactional_id, 60_000, soon())
    (ended,) = transactions.end([handle], True, soon()).values()

    assert (producer_id, ended.outcome) == (handle.producer_id, Outcome.UNKNOWN)
    assert epoch > handle.epoch
    assert committed(transaction_kafka, topic) == []


@BOTH_IN_ALL
def test_200_transactions_are_committed_at_the_same_time(
    transactions: TransactionClient, client: ClusterClient, transaction_kafka: Kafka, topic: str
) -> None:
    handles = [opened(client, topic, str(number)) for number in range(200)]
    ended = transactions.end(handles, True, soon())

    assert {each.outcome for each in ended.values()} == {Outcome.COMMITTED}
    assert set(ended) == {handle.transactional_id for handle in handles}
    wait_until(lambda: len(committed(transaction_kafka, topic)) == 200)


def test_only_what_is_open_under_the_prefix_is_listed(transactions: TransactionClient, client: ClusterClient, topic: str) -> None:
    prefix = new_id("listed")
    mine, ended = (opened(client, topic, "row", f"{prefix}.q.a.{slot}") for slot in range(2))
    other = opened(client, topic, "row", f"{prefix}x.q.a.0")
    transactions.end([ended], True, soon())
    writer(client, topic, f"{prefix}.q.a.2")  # initialised, and nothing written
    listed = transactions.list_open(f"{prefix}.", soon())
    handles = transactions.open_handles(TransactionalIds(prefix, "q"), soon())

    assert listed == [mine.transactional_id]
    (handle,) = handles
    assert (handle.transactional_id, handle.producer_id, handle.epoch) == (mine.transactional_id, mine.producer_id, mine.epoch)
    assert handle.transaction_version == mine.transaction_version
    assert {each.outcome for each in transactions.end([handle, other], False, soon()).values()} == {Outcome.ABORTED}
    assert transactions.list_open(prefix, soon()) == []


def test_the_log_of_commits_and_other_queries_are_no_orphans_of_a_query(
    transactions: TransactionClient, client: ClusterClient, topic: str
) -> None:
    ids, others = TransactionalIds(new_id("prefix"), "q"), TransactionalIds(new_id("prefix"), "q2")
    handles = [opened(client, topic, "row", name) for name in (ids.commit_log, others.for_slot("a", 0), f"{ids.start}A.0")]

    assert transactions.open_handles(ids, soon()) == ()
    transactions.end(handles, False, soon())


def test_a_timeout_over_the_brokers_limit_names_the_option_and_the_brokers(transactions: TransactionClient) -> None:
    with pytest.raises(OptionError, match=r"option transaction\.timeout\.ms: .*transaction\.max\.timeout\.ms"):
        transactions.init_producer_id(new_id(), 2**31 - 1, soon())


@embedded_in_make_test("13 s; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_a_commit_outlives_coordinators_that_die(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=kafka3, replication=3)
    with client_of(kafka3) as client:
        transactions = TransactionClient(client)
        handles = [opened(client, topic, str(number)) for number in range(12)]
        kafka3.kill(2)
        ended = transactions.end(handles, True, soon(60))

    assert {each.outcome for each in ended.values()} == {Outcome.COMMITTED}
    wait_until(lambda: sorted(map(int, committed(kafka3, topic))) == list(range(12)))


@embedded_in_make_test("seconds of Java; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_a_list_is_of_all_brokers_or_there_is_none(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=kafka3, replication=3)
    prefix = new_id("all")
    with client_of(kafka3) as client:
        transactions = TransactionClient(client)
        handles = [opened(client, topic, "row", f"{prefix}-{number}") for number in range(12)]
        kafka3.pause(3)
        with pytest.raises(
            DeadlineError, match=r"(ListTransactions of|FIND_COORDINATOR:|the brokers:) broker 3 .*(did not respond|no response)"
        ):
            transactions.list_open(prefix, soon(1))
        kafka3.resume(3)
        listed = transactions.list_open(prefix, soon(60))

        assert sorted(listed) == sorted(handle.transactional_id for handle in handles)
        transactions.end(handles, False, soon())


def test_without_an_answer_the_outcome_is_unknown_and_says_why(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    with client_of(proxied_kafka.proxy.address) as client:
        transactions = TransactionClient(client)
        handle = opened(client, topic, "row")
        proxied_kafka.proxy.pause("to_client")
        (unknown,) = transactions.end([handle], True, soon(1.5)).values()
        proxied_kafka.proxy.heal()
        (ended,) = transactions.end([handle], True, soon()).values()

    assert (unknown.outcome, unknown.code) == (Outcome.UNKNOWN, None)
    assert "did not respond to END_TXN" in unknown.error
    assert ended.outcome is Outcome.COMMITTED


@pytest.mark.embedded
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_is_ended_at_a_coordinator_that_speaks_no_later_end_txn_than_v3(commits: bool) -> None:
    with EmbeddedKafka(in_memory=True, like="3.7") as kafka, client_of(kafka) as client:
        kafka.create_topic("events")
        handle = opened(client, "events", "row")
        (ended,) = TransactionClient(client).end([handle], commits, soon()).values()

        assert ended.outcome is (Outcome.COMMITTED if commits else Outcome.ABORTED)
        wait_until(lambda: committed(kafka, "events") == (["row"] if commits else []))
