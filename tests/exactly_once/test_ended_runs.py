"""Runs that are stopped, failed, refused, paused or replaced: what they leave is ended, and what others committed stays."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from spark_kafka_sink.errors import BatchAbortedError, CommitStoppedError, CommitTimeoutError, OptionError, TooManyBadRowsError
from spark_kafka_sink.exactly_once import commit_log
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.committer import CommitReport
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from tests.exactly_once.opened import new_id, soon
from tests.exactly_once.queries import CUTS, PREFIX, SHOW_MOST, Cut, Query, once_at, unusable
from tests.tiers import whole_but

pytestmark = pytest.mark.slow


def refuse() -> None:
    raise TooManyBadRowsError("too many")


def test_a_batch_that_the_driver_refuses_leaves_nothing_open_and_may_be_written_again(query: Query) -> None:
    """Such as one with too many bad rows."""
    query.run(0, "a")
    with pytest.raises(TooManyBadRowsError):
        query.committer().commit(MicroBatch(query.id, 1), query.write("b", "c", batch=1), refuse=refuse)
    assert query.open_ids() == []
    query.expect("a")
    query.run(1, "b")
    query.expect("a", "b")


@pytest.mark.parametrize("reached", ["prepared.after", "end.after"])
def test_a_batch_that_an_earlier_attempt_has_prepared_is_completed_and_not_refused(query: Query, cut: Cut, reached: str) -> None:
    """It may be visible in part. Refusing it would leave it so until its other transactions time out."""
    query.run(0, "a")

    with cut(reached):
        query.run(1, "b", "c")
    report = query.committer().commit(MicroBatch(query.id, 1), query.write("b", "c", batch=1), refuse=refuse)
    assert (report.rows, report.own) == (2, False)
    again = query.committer().commit(MicroBatch(query.id, 1), query.write("b", "c", batch=1), refuse=refuse)
    assert not again.is_first
    query.expect("a", "b", "c")
    assert query.open_ids() == []


def test_a_driver_that_comes_back_late_changes_nothing(any_query: Query, cut: Cut) -> None:
    zombie, own = any_query.committer(), any_query.write("a", "b")
    with cut("prepared.before"):
        zombie.commit(MicroBatch(any_query.id, 0), own)
    any_query.run(0, "a", "b")
    any_query.run(1, "c")
    with pytest.raises(CommitStoppedError):
        zombie.commit(MicroBatch(any_query.id, 0), own)
    any_query.run(2, "d")
    any_query.expect("a", "b", "c", "d")


def test_a_driver_whose_rows_another_one_has_committed_does_not_say_that_they_are_invisible(query: Query, cut: Cut) -> None:
    first, own = query.committer(), query.write("a")
    with cut("prepared.after"):
        first.commit(MicroBatch(query.id, 0), own)
    query.run(0, "a")
    query.run(1, "b")
    with pytest.raises(CommitStoppedError, match="the commit log is ahead") as caught:
        first.commit(MicroBatch(query.id, 0), own)
    assert "not visible" not in str(caught.value)
    query.expect("a", "b")


def test_a_failed_job_whose_transactions_brokers_have_ended_leaves_nothing_open_either(any_query: Query) -> None:
    own = any_query.write("a")
    TransactionClient(any_query.client).init_producer_id(own[0].handle.transactional_id, 60_000, soon())  # as a time-out does
    assert any_query.committer().abort_job(MicroBatch(any_query.id, 0), own) is True
    assert any_query.id not in any_query.log().last_records(soon()).records


def test_a_failed_job_leaves_nothing_open_and_nothing_in_the_log(query: Query) -> None:
    told, _ = query.write("a"), query.write("b")
    job = MicroBatch(query.id, 0)
    assert query.committer().abort_job(job, told) is True
    assert query.open_ids() == []
    query.expect()
    assert query.id not in query.log().last_records(soon()).records


def test_a_job_that_failed_while_it_was_committed_is_not_touched(query: Query, cut: Cut) -> None:
    own = query.write("a", "b")
    with cut("end.before"):
        query.commit(0, own)
    assert query.committer().abort_job(MicroBatch(query.id, 0), own) == Refused(Refusal.PREPARED)
    query.commit(0, own)
    query.expect("a", "b")
    assert query.committer().abort_job(MicroBatch(query.id, 0), own) == Refused(Refusal.COMPLETE)


def not_called(number: int, report: CommitReport) -> None:
    raise AssertionError(report)


@pytest.mark.parametrize("at", whole_but([None, *CUTS], [None, *SHOW_MOST], "a second each; the model has every order of events"))
def test_a_run_that_is_stopped_leaves_nothing_open_wherever_its_commit_was(query: Query, cut: Cut, at: str | None) -> None:
    query.run(0, "a")
    run, other = replace(query, driver="c0"), replace(query, driver="d0")
    own = run.write("b", "c", batch=1)
    if at is not None:
        with cut(at):
            run.commit(1, own)
    run.write("b", batch=1)  # of a task that was killed
    (of_other,) = other.write("b", batch=1)
    counted: list[tuple[int, CommitReport]] = []
    assert run.committer().end_stopped(MicroBatch(query.id, 1), "c0", lambda *of: counted.append(of)) is True
    is_prepared = at in ("prepared.after", "end.before", "end.after", "complete.before")
    assert [(number, of.rows, of.committed) for number, of in counted] == [(1, 2, 2)] * is_prepared
    assert query.open_ids() == [of_other.handle.transactional_id]
    query.run(1, "b", "c")
    query.expect("a", "b", "c")


def test_the_batch_before_that_the_end_of_a_stopped_run_commits_is_counted_once_though_an_error_comes_between(
    query: Query, cut: Cut
) -> None:
    with cut("prepared.after"):
        query.run(0, "a", "b")
    with cut("complete.before"):
        query.committer().end_stopped(MicroBatch(query.id, 1), "", not_called)
    counted: list[tuple[int, CommitReport]] = []
    assert query.committer().end_stopped(MicroBatch(query.id, 1), "", lambda *of: counted.append(of)) is True
    assert [(number, of.rows, of.committed) for number, of in counted] == [(0, 2, 2)]
    query.expect("a", "b")


def test_a_stopped_run_leaves_a_query_alone_that_another_driver_has_taken_over(query: Query) -> None:
    query.run(0, "a")
    replace(query, driver="c0").write("a")
    other = replace(query, driver="d0")
    other.run(1, "b")
    open_ids = [each.handle.transactional_id for each in (*other.write("c"), *replace(query, driver="c0").write("a"))]
    assert query.committer().end_stopped(MicroBatch(query.id, 0), "c0", not_called) == Refused(Refusal.MOVED_ON)
    assert sorted(query.open_ids()) == sorted(open_ids)


def test_the_record_of_a_query_that_is_stopped_again_and_again_stays_small(query: Query) -> None:
    query.run(0, "a")
    for _ in range(3):
        query.write("b", "c", batch=1)
        assert query.committer().end_stopped(MicroBatch(query.id, 1), "", not_called) is True
    record = query.log().last_records(soon()).records[query.id].record
    assert (record.batch, record.state, len(record.transactions)) == (0, State.COMPLETE, 3)
    query.run(1, "b", "c")
    query.expect("a", "b", "c")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_job_whose_commit_could_not_say_any_more_that_it_is_complete_is_not_taken_for_one_that_failed(
    query: Query, cut: Cut, *, is_told: bool
) -> None:
    query.id = MicroBatch.of_new_job().query_id
    own = query.write("a", "b")
    with cut("commit.end"):
        query.commit(0, own)
    query.write("a")  # of an attempt that Spark has given up
    assert query.committer().abort_job(MicroBatch(query.id, 0), own if is_told else ()) == Refused(Refusal.COMPLETE)
    query.expect("a", "b")


def test_of_a_job_that_is_complete_what_lost_tasks_left_open_is_aborted(query: Query, cut: Cut) -> None:
    query.id = MicroBatch.of_new_job().query_id
    job, own = MicroBatch(query.id, 0), query.write("a")
    with cut("complete.after"):
        query.commit(0, own)
    query.write("b")  # of an attempt that Spark has given up
    assert query.committer().abort_job(job, own) == Refused(Refusal.COMPLETE)
    assert query.open_ids() == []
    query.expect("a")


def test_a_job_that_may_be_prepared_by_another_process_is_not_aborted_where_the_log_cannot_be_used(
    query: Query, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.id = MicroBatch.of_new_job().query_id
    own = query.write("a", "b")
    with cut("prepared.after"):
        query.commit(0, own)
    with monkeypatch.context() as patch, pytest.raises(OptionError):
        patch.setattr(CommitLog, "ensure", unusable)
        query.committer().abort_job(MicroBatch(query.id, 0), own)
    query.commit(0, own)
    query.expect("a", "b")


def test_records_of_jobs_are_removed_when_nobody_asks_any_more(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    old, prepared, sweeping = (
        replace(query, id=f"job-{new_id(name)}{end}") for name, end in (("a", "1"), ("b", "2"), ("c", "0"))
    )
    old.run(0, "a")
    claim = prepared.log().claim(TransactionalIds(PREFIX, prepared.id), soon())
    claim.write(CommitRecord(prepared.id, 0, State.PREPARED, "r", 0, ()), soon())
    sweeping.committer().check(MicroBatch(sweeping.id, 0), 30)
    assert {old.id, prepared.id} <= query.log().last_records(soon()).records.keys()
    monkeypatch.setattr(commit_log, "_KEPT_FOR_MS", {State.COMPLETE: -60_000})
    old.committer().check(MicroBatch(old.id, 0), 30)
    assert old.id in query.log().last_records(soon()).records
    sweeping.committer().check(MicroBatch(sweeping.id, 0), 30)
    assert query.log().last_records(soon()).records.keys() & {old.id, prepared.id} == {prepared.id}


# A driver is paused in its commit, and its successor commits meanwhile: it reads the log again before it gives up


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
    once_at(monkeypatch, where, successor)
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
    once_at(monkeypatch, where, lambda: any_query.run(0, "a", "b"))
    report = any_query.commit(0, own)
    assert (report.rows, report.own) == (0, False)
    any_query.expect("a", "b")
    assert any_query.open_ids() == []


def test_one_that_was_paused_for_longer_than_a_commit_may_take_does_not_say_that_the_batch_is_lost(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = query.hurried()

    def successor() -> None:
        query.run(0, "a", "b")
        paused.call.deadline = time.monotonic()

    own = query.write("a", "b")
    once_at(monkeypatch, "log.after", successor)
    with pytest.raises(CommitTimeoutError, match=r"None of this run's rows is visible.* unless another driver has committed it"):
        paused.commit(MicroBatch(query.id, 0), own)
    query.expect("a", "b")
    assert query.open_ids() == []


@pytest.mark.fault("spark", "a paused driver whose successor has committed reads the log before BATCH_ABORTED")
def test_only_where_nobody_has_committed_it_the_batch_is_aborted(any_query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    own = any_query.write("a", "b")
    once_at(monkeypatch, "log.after", lambda: any_query.abort(own))  # as brokers do after its time-out
    with pytest.raises(BatchAbortedError, match=r"none of this run's rows is or will become visible"):
        any_query.commit(0, own)
    any_query.run(0, "a", "b")
    any_query.expect("a", "b")
