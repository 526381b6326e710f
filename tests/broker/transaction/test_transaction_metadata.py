"""The table of states: that of Kafka 4.1, whole and without a dead end."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.transaction.state_transitions import VERSION_1, VERSION_2
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    IDLE,
    PENDING,
    VALID_PREVIOUS_STATES,
    IllegalTransitionError,
    TransactionMetadata,
    TransactionState,
)

S = TransactionState


def test_names_are_those_that_clients_filter_by() -> None:
    names = [state.state_name for state in TransactionState]
    assert names == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
    ]  # fmt: skip


def test_each_state_says_from_where_it_is_reached() -> None:
    assert VALID_PREVIOUS_STATES.keys() == set(TransactionState)


def test_an_outcome_that_is_decided_leads_to_its_completion_only() -> None:
    after = {state: {to for to, before in VALID_PREVIOUS_STATES.items() if state in before} for state in TransactionState}
    assert after[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert after[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}
    assert after[S.DEAD] == set()


def test_only_a_running_transaction_commits() -> None:
    assert VALID_PREVIOUS_STATES[S.PREPARE_COMMIT] == {S.ONGOING}


def test_the_tables_of_ends_have_a_row_for_every_state_that_can_be_met() -> None:
    met = IDLE | {S.ONGOING}
    assert {state for state, _ in VERSION_1} == met
    assert {state for state, _, _ in VERSION_2} == met
    assert not met & PENDING
    assert len(VERSION_1) == 2 * len(met)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.PREPARE_ABORT])
def test_a_transition_that_is_not_in_the_table_is_refused(state: TransactionState) -> None:
    metadata = TransactionMetadata("t", 1, 1000, producer_epoch=0, state=state)
    with pytest.raises(IllegalTransitionError):
        metadata.prepared(S.PREPARE_COMMIT, 2, -1, 0)


def test_an_epoch_that_does_not_exist_is_refused() -> None:
    metadata = TransactionMetadata("t", 1, 1000, producer_epoch=32767, state=S.ONGOING)
    with pytest.raises(IllegalTransitionError):
        metadata.fenced(2, 0)
