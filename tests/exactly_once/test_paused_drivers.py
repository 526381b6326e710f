"""A driver is paused in its commit, and its successor commits meanwhile: it reads the log again before it gives up.

In processes of Spark's: tests/faults/exactly_once/test_two_drivers.py. In every order of events: model/, by the rule "read again
before giving up"."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from spark_kafka_sink.errors import BatchAbortedError, CommitStoppedError, CommitTimeoutError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from tests.exactly_once.queries import PREFIX, Query
from tests.tiers import whole_but


def while_paused(monkeypatch: pytest.MonkeyPatch, where: str, meanwhile: Callable[[], object]) -> None:
    """Does something when the first commit has come to a failpoint."""
    left = [meanwhile]

    def reach(name: str, batch: int) -> None:
        if name == where and left:
            left.pop()()

    monkeypatch.setattr(failpoints, "reach", reach)


PAUSED = pytest.mark.parametrize(
    "where", whole_but(["log.before", "log.after", "prepared.before"], ["log.after"], "the model has every order of events")
)


# log.after: it has read the log before the pause, and finds afterwards that its successor has aborted its transactions.
@pytest.mark.fault("spark", "a paused driver whose successor has committed reads the log before BATCH_ABORTED")
@pytest.mark.fault("spark", "two drivers of one query")
@PAUSED
def test_a_successor_that_went_on_is_what_the_error_names(any_query: Query, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def successor() -> None:
        any_query.run(0, "a", "b")
        any_query.run(1, "c")

    own = any_query.write("a", "b")
    while_paused(monkeypatch, where, successor)
    with pytest.raises(CommitStoppedError, match="the commit log is ahead: another driver runs this query"):
        any_query.commit(0, own)
    any_query.expect("a", "b", "c")
    assert any_query.open_ids() == []


@pytest.mark.fault("spark", "a paused driver whose successor has committed reads the log before BATCH_ABORTED")
@PAUSED
def test_a_batch_that_its_successor_has_committed_is_no_error(
    any_query: Query, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    own = any_query.write("a", "b")
    while_paused(monkeypatch, where, lambda: any_query.run(0, "a", "b"))
    report = any_query.commit(0, own)
    assert (report.rows, report.own) == (0, False)
    any_query.expect("a", "b")
    assert any_query.open_ids() == []


@pytest.mark.slow
def test_one_that_was_paused_for_longer_than_a_commit_may_take_does_not_say_that_the_batch_is_lost(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = Committer(query.log(), TransactionClient(query.client), PREFIX, timeout_s=2)

    def successor() -> None:
        query.run(0, "a", "b")
        time.sleep(2)

    own = query.write("a", "b")
    while_paused(monkeypatch, "log.after", successor)
    with pytest.raises(CommitTimeoutError, match=r"None of this run's rows is visible.* unless another driver has committed it"):
        paused.commit(MicroBatch(query.id, 0), own)
    query.expect("a", "b")
    assert query.open_ids() == []


@pytest.mark.fault("spark", "a paused driver whose successor has committed reads the log before BATCH_ABORTED")
def test_only_where_nobody_has_committed_it_the_batch_is_aborted(any_query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    own = any_query.write("a", "b")
    while_paused(monkeypatch, "log.after", lambda: any_query.abort(own))  # as brokers do after its time-out
    with pytest.raises(BatchAbortedError, match=r"none of this run's rows is or will become visible"):
        any_query.commit(0, own)
    any_query.run(0, "a", "b")
    any_query.expect("a", "b")
