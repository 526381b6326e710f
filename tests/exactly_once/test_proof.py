"""What a description of a transactional id proves of one of its transactions; test_transaction_client measures it on brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.proof import (
    Outcome,
    Proof,
    TransactionDescription,
    outcome_of_markers,
    proof_of,
    proof_of_marker,
)
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

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
