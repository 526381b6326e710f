"""What errors of a commit tell people to do."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once.commit_errors import RowVisibility, commit_stopped, commit_timeout
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_rules import Reason, View
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch

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
