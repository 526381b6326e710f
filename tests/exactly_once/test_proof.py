"""What proves how a transaction ended: a description of its id, or a marker in a topic."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once import partition_reader
from spark_kafka_sink.exactly_once.partition_reader import PartitionReader, look_for_markers
from spark_kafka_sink.exactly_once.proof import (
    Outcome,
    Proof,
    TransactionDescription,
    outcome_of_markers,
    proof_of,
    proof_of_marker,
)
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.records.small_batches import NewRecord
from tests.exactly_once.opened import new_id, opened, soon, writer
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.waiting import until, wait_until

STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
    "SomethingNew",
]
COMMITTED, ABORTED = ("PrepareCommit", "CompleteCommit"), ("PrepareAbort", "CompleteAbort")


def handle(transaction_version: int, epoch: int = 7) -> TransactionHandle:
    return TransactionHandle("p.q.a.0", 1000, epoch, transaction_version, 1)


def said(state: str, epoch: int, producer_id: int = 1000) -> TransactionDescription:
    return TransactionDescription(state, producer_id, epoch, 60_000, -1)


def proved(transaction_version: int, epoch: int) -> dict[Proof, list[str]]:
    """By what is proved, the states that prove it where the handle's epoch is 7."""
    found: dict[Proof, list[str]] = {}
    for state in STATES:
        found.setdefault(proof_of(handle(transaction_version), said(state, epoch)), []).append(state)
    del found[Proof.UNKNOWN]
    return found


def test_with_version_2_the_end_of_a_transaction_is_at_the_next_epoch() -> None:
    assert proved(2, 7) == {Proof.OPEN: ["Ongoing"]}
    assert proved(2, 8) == {
        Proof.COMMITTED: ["PrepareCommit", "CompleteCommit"],
        Proof.ABORTED: ["PrepareAbort", "CompleteAbort", "PrepareEpochFence"],
    }


def test_with_version_1_it_is_at_its_own_epoch_and_a_timeout_at_the_next() -> None:
    assert proved(1, 7) == {
        Proof.OPEN: ["Ongoing"],
        Proof.COMMITTED: ["PrepareCommit", "CompleteCommit"],
        Proof.ABORTED: ["PrepareAbort", "CompleteAbort"],
    }
    assert proved(1, 8) == {Proof.ABORTED: ["PrepareAbort", "CompleteAbort", "PrepareEpochFence"]}


@given(
    version=st.sampled_from([1, 2]),
    state=st.sampled_from(STATES),
    epoch=st.integers(0, 32767),
    epoch_said=st.integers(-1, 32767),
)
def test_another_epoch_or_producer_id_proves_nothing(version: int, state: str, epoch: int, epoch_said: int) -> None:
    assert proof_of(handle(version, epoch), said(state, epoch_said, producer_id=1001)) is Proof.UNKNOWN
    if epoch_said not in (epoch, epoch + 1):
        assert proof_of(handle(version, epoch), said(state, epoch_said)) is Proof.UNKNOWN


@pytest.mark.parametrize("state", [*COMMITTED, *ABORTED])
def test_a_producer_id_whose_epochs_ran_out_is_followed_by_another_which_proves_nothing(state: str) -> None:
    assert proof_of(handle(5, 32_766), said(state, 0, producer_id=2000)) is Proof.UNKNOWN
    # While its markers are written the old producer id is still there, with the last epoch.
    outcome = Proof.COMMITTED if state in COMMITTED else Proof.ABORTED
    assert proof_of(handle(5, 32_766), said(state, 32_767)) is outcome


def test_an_id_that_nobody_knows_proves_nothing() -> None:
    assert proof_of(handle(5), None) is Proof.UNKNOWN


def test_a_marker_proves_what_its_coordinator_did_at_that_epoch() -> None:
    def proofs(version: int, *, committed: bool) -> list[Proof]:
        return [proof_of_marker(handle(version), 1000, epoch, committed=committed) for epoch in (6, 7, 8, 9)]

    unknown = Proof.UNKNOWN
    assert proofs(1, committed=True) == [unknown, Proof.COMMITTED, unknown, unknown]
    assert proofs(1, committed=False) == [unknown, Proof.ABORTED, Proof.ABORTED, unknown]
    assert proofs(2, committed=True) == [unknown, unknown, Proof.COMMITTED, unknown]
    assert proofs(2, committed=False) == [unknown, unknown, Proof.ABORTED, unknown]
    assert proof_of_marker(handle(2), 1001, 8, committed=True) is unknown


@pytest.mark.parametrize(
    ("proofs", "outcome"),
    [
        ([Proof.ABORTED, Proof.ABORTED], Outcome.ABORTED),
        ([Proof.ABORTED, Proof.UNKNOWN], Outcome.UNKNOWN),
        ([Proof.ABORTED, Proof.COMMITTED], Outcome.UNKNOWN),
        ([Proof.COMMITTED, Proof.UNKNOWN], Outcome.COMMITTED),
        ([Proof.UNKNOWN], Outcome.UNKNOWN),
        ([], Outcome.UNKNOWN),
    ],
)
def test_an_abort_is_proved_only_by_the_markers_in_all_partitions(proofs: list[Proof], outcome: Outcome) -> None:
    assert outcome_of_markers(proofs) is outcome


# What topics tell about transactions whose coordinators no longer know how they ended


DAY_MS = 86_400_000


@pytest.fixture
def topic(transaction_kafka: Kafka, new_topic: NewTopic) -> str:
    return new_topic(on=transaction_kafka)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("age_ms", [400 * DAY_MS, -DAY_MS // 48])
def test_whatever_the_timestamps_of_rows_a_marker_tells_how_their_transaction_ended(
    client: ClusterClient, topic: str, commits: bool, age_ms: int
) -> None:
    transactions = TransactionClient(client)
    made = writer(client, topic, new_id())
    made.append([NewRecord(None, b"row", now_ms() - age_ms)], soon())
    handle = made.handle()
    transactions.end([handle], commits, soon())
    expected = Outcome.COMMITTED if commits else Outcome.ABORTED

    def found() -> Outcome:
        return look_for_markers(client, [handle], now_ms(), soon())[0][handle]

    until(found, lambda outcome: outcome is expected, "the marker")


def test_transactions_are_told_apart_and_one_that_is_open_is_unknown(client: ClusterClient, topic: str) -> None:
    transactions = TransactionClient(client)
    first, second, third = (opened(client, topic, "row") for _ in range(3))
    transactions.end([first], True, soon())
    transactions.end([second], False, soon())

    def found() -> list[Outcome]:
        return list(look_for_markers(client, [first, second, third], now_ms(), soon())[0].values())

    until(found, lambda it: it == [Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN], "the markers")
    transactions.end([third], False, soon())


def test_before_its_batch_was_prepared_nothing_is_read(client: ClusterClient, topic: str) -> None:
    """Else one partition with years of records would have to be read."""
    transactions = TransactionClient(client)
    handle = opened(client, topic, "row")
    transactions.end([handle], False, soon())
    until(
        lambda: look_for_markers(client, [handle], now_ms(), soon())[0][handle],
        lambda outcome: outcome is Outcome.ABORTED,
        "the marker",
    )
    outcomes, reasons = look_for_markers(client, [handle], now_ms() + DAY_MS, soon())

    assert outcomes == {handle: Outcome.UNKNOWN}
    assert reasons[0].startswith(f"topic {topic}, partition 0 has no marker of {handle.transactional_id} since ")


def test_of_many_partitions_without_markers_some_are_named(client: ClusterClient, topic: str) -> None:
    transactions = TransactionClient(client)
    handle = opened(client, topic, "row")
    _, reasons = look_for_markers(client, [replace(handle, partitions=((topic, "0-14"),))], now_ms(), soon())

    assert reasons[1:] == [*(f"topic {topic} has no partition {number}" for number in range(1, 10)), "and 5 more"]
    transactions.end([handle], False, soon())


def test_one_that_runs_out_of_time_says_to_raise_it_and_takes_nothing_for_proved(
    transaction_kafka: Kafka, new_topic: NewTopic, client: ClusterClient
) -> None:
    topic = new_topic(2, on=transaction_kafka)
    handle = opened(client, topic, "row")
    TransactionClient(client).end([handle], False, soon())
    in_both = replace(handle, partitions=((topic, "0-1"),))
    outcomes, reasons = look_for_markers(client, [in_both], now_ms(), time.monotonic())

    assert outcomes == {in_both: Outcome.UNKNOWN}
    (reason,) = reasons
    assert reason.startswith("the time was too short to look for markers: raise --timeout (")


def test_a_partition_that_takes_too_long_says_how_far_it_was_read(
    client: ClusterClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_FETCH_BYTES", 1)
    transactions = TransactionClient(client)
    handles = [opened(client, topic, "row") for _ in range(2)]
    for each in handles:
        transactions.end([each], False, soon())
    wait_until(lambda: len(list(PartitionReader(client, topic, 0).markers(0, soon()))) == len(handles))
    found = PartitionReader(client, topic, 0).markers(0, soon())
    next(found)
    monkeypatch.setattr(ResponseWaiter, "is_over", True)
    with pytest.raises(DeadlineError, match=f"^\\[DEADLINE\\] {topic}-0 was read up to offset 3 of 4$"):
        next(found)
