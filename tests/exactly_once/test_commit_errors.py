"""What errors of a commit tell people to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once.commit_errors import RowVisibility, batch_aborted, commit_stopped, commit_timeout
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, TaskRows
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.rules import Reason, View
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

BATCH = MicroBatch("q", 7)


@pytest.mark.parametrize(
    ("reason", "to_do"),
    [
        (Reason.GAP, "2. in foreachBatch, call the sink for every batch, even one without rows"),
        (Reason.OTHER_ROWS, "2. if you changed the query: finish this batch with the old version first"),
        (
            Reason.OTHER_ROWS,
            "end the batch with `spark-kafka-sink transactions recover --query q`, and continue from a new checkpoint",
        ),
        (Reason.CLOSED, "start the query again"),
    ],
)
def test_what_may_be_the_user_s_own_doing_is_named(reason: Reason, to_do: str) -> None:
    assert to_do in str(commit_stopped(BATCH, View(7, ()), reason, ""))


def test_a_clock_that_is_ahead_makes_transactions_look_old() -> None:
    said = str(batch_aborted(BATCH, (), [TransactionHandle("id", 1, 0, 2, 3)]))
    assert "this machine's clock must not be ahead of the brokers'" in said


@pytest.mark.parametrize(
    ("state", "to_do"),
    [
        (State.PREPARED, "run `spark-kafka-sink transactions recover --query q`"),
        (State.REPLAY, "resolve --query q --batch 3 --accept-loss`"),
        (State.ABORTED, "set commit.log.start=7"),
        (
            State.CLOSED,
            "2. if the query has run without exactly-once so far, or those rows are not wanted: set commit.log.start=7",
        ),
    ],
)
def test_what_helps_depends_on_what_became_of_the_batch_before(state: State, to_do: str) -> None:
    view = View(7, (), read=True, last=CommitRecord("q", 3, state, "r", 5))
    assert to_do in str(commit_stopped(BATCH, view, Reason.UNFINISHED, ""))


@pytest.mark.parametrize("last", [None, CommitRecord("q", 0, State.CLOSED, "r", 0)], ids=["no record", "closed"])
def test_before_a_lost_log_begins_again_at_a_batch_a_person_looks_whether_its_rows_are_visible(last: CommitRecord | None) -> None:
    reason = Reason.NO_RECORD if last is None else Reason.UNFINISHED
    said = str(commit_stopped(BATCH, View(7, (), read=True, last=last), reason, ""))
    assert said.endswith(
        "3. if its log was deleted: set commit.log.start=7 as well, but first look whether rows of this batch are visible,"
        f" because that start writes them again: {HOW_TO_LOOK}"
    )


def test_rows_that_somebody_else_may_have_committed_are_not_said_to_be_invisible() -> None:
    own = (PreparedTransaction(TransactionHandle("id", 1, 0, 2, 3), 0, 0),)
    view = View(7, own, read=True, last=CommitRecord("q", 8, State.COMPLETE, "r", 5))
    assert "3 rows of this run are not visible" in str(commit_stopped(BATCH, view, Reason.BEHIND, ""))
    assert "not visible" not in str(commit_stopped(BATCH, view, Reason.BEHIND, "", is_invisible=False))


def test_what_spark_passed_is_said_if_it_is_not_what_was_stored() -> None:
    own = (PreparedTransaction(TransactionHandle("id", 1, 0, 2, 3), 0, 0),)
    last = CommitRecord("q", 8, State.COMPLETE, "r", 5, tasks=(TaskRows(0, 5, 0),))
    view = View(7, own, read=True, last=last, tasks=(TaskRows(0, 3, 0),))
    assert "that Spark passed" not in str(commit_stopped(BATCH, view, Reason.BEHIND, ""))
    view = View(7, own, read=True, last=replace(last, tasks=(TaskRows(0, 6, 0),)), tasks=(TaskRows(0, 4, 0),))
    said = str(commit_stopped(BATCH, view, Reason.BEHIND, ""))
    assert "3 rows, of 4 that Spark passed to tasks, of this run are not visible" in said
    assert "batch 8, complete, 5 rows, of 6 that Spark passed to tasks." in said


JOB = MicroBatch("job-1", 0)
TOO_LATE = DeadlineError("not within 300,000 ms")


@pytest.mark.parametrize("visibility", [RowVisibility.UNKNOWN, RowVisibility.PREPARED, RowVisibility.VISIBLE])
def test_a_job_whose_commit_did_not_end_is_to_be_run_again_only_where_recover_says_so(visibility: RowVisibility) -> None:
    said = str(commit_timeout(JOB, (), 300, TOO_LATE, visibility, "--bootstrap-servers b:1"))
    assert "run `spark-kafka-sink transactions recover --query job-1 --bootstrap-servers b:1` within 48 hours" in said
    assert said.endswith("run the job again only if the report says so")


@pytest.mark.parametrize("visibility", [RowVisibility.ABORTED, RowVisibility.OPEN])
def test_a_job_that_nobody_can_have_committed_is_to_be_run_again(visibility: RowVisibility) -> None:
    said = str(commit_timeout(JOB, (), 300, TOO_LATE, visibility, ""))
    assert "None of this run's rows is visible" in said
    assert said.endswith("To continue: run the job again")
