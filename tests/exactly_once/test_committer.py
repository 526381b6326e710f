"""Batches are committed once, wherever a commit is cut off, judged by a consumer that reads committed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from spark_kafka_sink.errors import BatchAbortedError, CommitStoppedError
from spark_kafka_sink.exactly_once import execution
from spark_kafka_sink.exactly_once.commit_log import Claim
from spark_kafka_sink.exactly_once.resolving import Refusal
from spark_kafka_sink.exactly_once.share import Batch
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from tests.exactly_once.opened import soon
from tests.exactly_once.queries import OPTIONS, PREFIX, CutError, Query
from tests.kafka.fixtures import NewTopic

Cut = Callable[[str | None], None]


def test_the_rows_of_a_batch_become_visible_and_the_report_counts_them(query: Query) -> None:
    own = query.write("a", "b", "c")
    assert query.visible() == []
    report = query.commit(0, own)
    assert (report.rows, report.own, report.committed, report.aborted) == (3, True, 3, 0)
    assert 0 <= report.visible_ms <= report.commit_ms
    query.expect("a", "b", "c")
    assert query.open_ids() == []


def test_batches_follow_each_other_with_and_without_rows(query: Query) -> None:
    assert [query.run(0, "a").rows, query.run(1).rows, query.run(2, "b", "c").rows] == [1, 0, 2]
    query.expect("a", "b", "c")


def test_committed_twice_it_is_once(query: Query) -> None:
    own = query.write("a", "b")
    query.commit(0, own)
    again = query.commit(0, own)
    assert (again.rows, again.own, again.committed) == (0, True, 0)
    query.expect("a", "b")


def test_a_batch_that_is_written_again_after_it_was_complete_is_aborted(query: Query) -> None:
    query.run(0, "a", "b")
    report = query.run(0, "b", "a")
    assert (report.rows, report.own, report.aborted) == (0, False, 2)
    query.run(1, "c")
    query.expect("a", "b", "c")


CUTS = [
    "commit.start",
    "log.before",
    "log.after",
    "prepared.before",
    "prepared.after",
    "end.before",
    "end.after",
    "complete.before",
    "complete.after",
    "commit.end",
]


@pytest.mark.parametrize("where", CUTS)
def test_a_driver_that_dies_anywhere_is_followed_by_one_that_ends_what_it_began(any_query: Query, cut: Cut, where: str) -> None:
    any_query.run(0, "a")
    cut(where)
    with pytest.raises(CutError):
        any_query.run(1, "b", "c")
    cut(None)
    report = any_query.run(1, "c", "b")
    assert report.rows == (0 if where in ("complete.after", "commit.end") else 2)
    any_query.run(2, "d")
    any_query.expect("a", "b", "c", "d")
    assert any_query.open_ids() == []


@pytest.mark.parametrize("where", ["log.after", "prepared.before", "end.before", "complete.before"])
def test_who_loses_the_log_to_somebody_who_then_does_nothing_begins_again(
    any_query: Query, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    others = list[Claim]()

    def step(name: str, batch: int) -> None:
        if name == where and not others:
            others.append(any_query.log().claim(TransactionalIds(PREFIX, any_query.id), soon()))

    monkeypatch.setattr(execution, "step", step)
    report = any_query.run(0, "a", "b")
    assert (len(others), report.rows, report.own, report.committed) == (1, 2, True, 2)
    any_query.expect("a", "b")


def test_what_lost_tasks_left_open_is_aborted_once_the_batch_is_complete(query: Query) -> None:
    query.write("lost")
    report = query.run(0, "a")
    assert report.aborted == 1
    query.expect("a")


def test_another_querys_transactions_are_left_alone(query: Query, new_topic: NewTopic) -> None:
    other = Query(query.kafka, query.client, new_topic(), query.log_topic)
    theirs = other.write("theirs")
    query.run(0, "mine")
    assert other.open_ids() == [each.handle.transactional_id for each in theirs]
    other.commit(0, theirs)
    other.expect("theirs")


def test_what_was_prepared_and_is_proved_to_be_aborted_is_written_again(any_query: Query, cut: Cut) -> None:
    own = any_query.write("a", "b")
    cut("prepared.after")
    with pytest.raises(CutError):
        any_query.commit(0, own)
    cut(None)
    any_query.abort(own)
    report = any_query.run(0, "a", "b")
    assert (report.rows, report.own) == (2, True)
    any_query.expect("a", "b")


def test_when_only_a_part_can_be_committed_the_query_stops_and_says_which_rows_and_what_to_do(any_query: Query, cut: Cut) -> None:
    own = any_query.write("a", "b")
    cut("prepared.after")
    with pytest.raises(CutError):
        any_query.commit(0, own)
    cut(None)
    any_query.abort(own[1:])
    for _ in range(2):  # it stays so
        with pytest.raises(CommitStoppedError) as caught:
            any_query.run(0, "a", "b")
        text, lost = str(caught.value), own[1].handle.transactional_id
        assert text.startswith(
            f"[COMMIT_STOPPED] batch 0 of {any_query.id}: of the transactions of the batch some are not proved"
        )
        assert f"{lost}, 1 rows in {any_query.topic} 0 (aborted)" in text
        assert f"`spark-kafka-sink transactions resolve --query {any_query.id} --batch 0 {OPTIONS}`" in text
        assert (caught.value.facts["reason"], caught.value.facts["batch"]) == ("UNRESOLVED", 0)
    any_query.expect("a")
    assert any_query.open_ids() == []


def test_a_batch_whose_transactions_ended_before_its_commit_is_given_up_and_can_be_written_again(query: Query) -> None:
    own = query.write("a", "b")
    query.abort(own[:1])
    with pytest.raises(BatchAbortedError, match=r"^\[BATCH_ABORTED\] batch 0 of .*: nothing of it is visible") as caught:
        query.commit(0, own)
    assert caught.value.facts["transactional_ids"] == (own[0].handle.transactional_id,)
    assert query.open_ids() == []
    query.run(0, "a", "b")
    query.expect("a", "b")


def test_a_batch_that_has_hardly_any_time_left_is_not_begun_to_be_committed(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = query.write("a", timeout_ms=60_000)
    late = time.time_ns() + 50 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: late)
    with pytest.raises(BatchAbortedError, match=r"kafka\.transaction\.timeout\.ms"):
        query.commit(0, own)
    assert query.visible() == []


@pytest.mark.parametrize(
    ("number", "reason", "text"),
    [
        (0, "BEHIND", "another driver runs this query, or its checkpoint was rolled back"),
        (3, "GAP", "set commit.log.start=3"),
    ],
)
def test_a_checkpoint_that_does_not_belong_to_the_log_stops_the_query(query: Query, number: int, reason: str, text: str) -> None:
    query.run(0, "a")
    query.run(1, "b")
    with pytest.raises(CommitStoppedError, match=text) as caught:
        query.run(number, "again")
    assert caught.value.facts["reason"] == reason
    query.expect("a", "b")
    assert query.open_ids() == []


def test_a_log_that_knows_nothing_of_the_query_may_begin_where_it_is_told_to(query: Query) -> None:
    with pytest.raises(CommitStoppedError, match=r"set commit\.log\.start=5 for this start"):
        query.run(5, "a")
    assert query.commit(5, query.write("a", batch=5), start=5).rows == 1
    assert query.run(6, "b").rows == 1
    query.expect("a", "b")


def test_the_same_checkpoint_under_a_query_to_another_topic_stops_it(query: Query, new_topic: NewTopic) -> None:
    query.run(0, "a")
    other = new_topic()
    with pytest.raises(CommitStoppedError, match="to other topics: another query has this checkpoint") as caught:
        query.commit(0, query.write("b", topic=other))
    assert caught.value.facts["reason"] == "OTHER_TOPICS"
    assert query.visible(other) == []
    assert query.open_ids() == []


def test_a_driver_that_comes_back_late_changes_nothing(any_query: Query, cut: Cut) -> None:
    zombie, own = any_query.committer(), any_query.write("a", "b")
    cut("prepared.before")
    with pytest.raises(CutError):
        zombie.commit(Batch(any_query.id, 0), own)
    cut(None)
    any_query.run(0, "a", "b")
    any_query.run(1, "c")
    with pytest.raises(CommitStoppedError):
        zombie.commit(Batch(any_query.id, 0), own)
    any_query.run(2, "d")
    any_query.expect("a", "b", "c", "d")


def test_a_failed_job_leaves_nothing_open_and_nothing_in_the_log(query: Query) -> None:
    told, _ = query.write("a"), query.write("b")
    job = Batch(query.id, 0)
    assert query.committer().abort_job(job, told) is None
    assert query.open_ids() == []
    query.expect()
    assert query.id not in [each.query_id for each in query.log().read_all(soon())]


def test_a_job_that_failed_while_it_was_committed_is_not_touched(query: Query, cut: Cut) -> None:
    own = query.write("a", "b")
    cut("end.before")
    with pytest.raises(CutError):
        query.commit(0, own)
    cut(None)
    refused = query.committer().abort_job(Batch(query.id, 0), own)
    assert refused is not None
    assert refused.refusal is Refusal.PREPARED
    query.commit(0, own)
    query.expect("a", "b")
    complete = query.committer().abort_job(Batch(query.id, 0), own)
    assert complete is not None
    assert complete.refusal is Refusal.COMPLETE


def test_a_complete_job_is_forgotten(query: Query) -> None:
    query.id = Batch.of_new_job().query_id
    query.run(0, "a")
    query.expect("a")
    assert query.id not in [each.query_id for each in query.log().read_all(soon())]
