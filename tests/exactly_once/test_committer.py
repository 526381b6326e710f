"""Batches are committed once, wherever a commit is cut off, judged by a consumer that reads committed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.errors import BatchAbortedError, BrokerError, CommitStoppedError, OptionError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, TaskRows
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import Ended, TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.exactly_once.opened import soon
from tests.exactly_once.queries import CUTS, OPTIONS, PREFIX, SHOW_MOST, Cut, Query, once_at, unusable
from tests.faults.producing import numbers
from tests.kafka.fixtures import NewTopic
from tests.producer.transactions.transacting import scoped
from tests.tiers import whole_but

pytestmark = pytest.mark.slow


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


@pytest.mark.fault("spark", "commit() called twice")
def test_committed_twice_it_is_once(query: Query) -> None:
    own = query.write("a", "b")
    query.commit(0, own)
    again = query.commit(0, own)
    assert (again.rows, again.own, again.committed) == (0, True, 0)
    query.expect("a", "b")


@pytest.mark.parametrize("where", ["commit.start", "prepared.after"])
def test_a_batch_in_a_topic_that_was_replaced_before_the_commit_is_written_again(
    query: Query, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def reach(name: str, batch: int) -> None:
        if name == where:
            query.kafka.delete_topic(query.topic)
            query.kafka.create_topic(query.topic)

    transactional_id = TransactionalIds(PREFIX, query.id).for_slot("a", 0)
    with scoped(query.kafka.bootstrap_servers) as producer, producer.transaction(transactional_id) as scope:
        scope.append(query.topic, numbers(range(2)))
        handle = scope.prepare()
    assert handle is not None
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        with pytest.raises(BatchAbortedError, match=f"records are gone.* even if it was created again: {query.topic}"):
            query.commit(0, (PreparedTransaction(handle, 0, 1),))
    assert query.open_ids() == []
    assert query.run(0, "a", "b").rows == 2
    query.expect("a", "b")


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize(
    "at", [None, *whole_but(("prepared.after", "end.after", "complete.after"), ("prepared.after",), "like it")]
)
def test_when_a_topic_is_replaced_in_the_middle_of_a_commit_the_rows_of_other_topics_stay_and_the_query_stops_once(
    query: Query, new_topic: NewTopic, cut: Cut, at: str | None, *, is_ended: bool
) -> None:
    """Whoever commits the rest: a commit that is cut off, its repetition, or the end of the stopped run."""
    gone = new_topic()
    query.client.topic(gone, soon())
    (lost,) = query.write("c", topic=gone)
    lost = replace(lost, handle=replace(lost.handle, topic_ids=((gone, str(query.client.known().topic_id(gone))),)))
    own = (*query.write("a", "b"), lost)
    with cut("prepared.after"):
        query.commit(0, own)
    TransactionClient(query.client).end([own[0].handle], True, soon())
    query.kafka.delete_topic(gone)
    query.kafka.create_topic(gone)
    if at is not None:
        with cut(at):
            query.commit(0, query.write("a", "b", "c"))
    if is_ended:
        counted: list[int] = []
        assert query.committer().end_stopped(MicroBatch(query.id, 0), "", lambda _, of: counted.append(of.rows)) is True
        assert counted in ([], [2])
    with pytest.raises(
        CommitStoppedError, match=rf"records are gone.*: {gone}\. .* continue: start the query again, which"
    ) as caught:
        query.commit(0, query.write("a", "b", "c"))
    assert caught.value.facts["reason"] == "TOPIC_REPLACED"
    assert query.run(0, "a", "b", "c").rows == 0
    query.run(1, "d")
    assert query.open_ids() == []
    query.expect("a", "b", "d")


@pytest.mark.parametrize("where", whole_but(CUTS, SHOW_MOST, "a second each; the model has every order of events"))
def test_a_driver_that_dies_anywhere_is_followed_by_one_that_ends_what_it_began(any_query: Query, cut: Cut, where: str) -> None:
    any_query.run(0, "a")
    with cut(where):
        any_query.run(1, "b", "c")
    report = any_query.run(1, "c", "b")
    assert report.rows == (0 if where in ("complete.after", "commit.end") else 2)
    any_query.run(2, "d")
    any_query.expect("a", "b", "c", "d")
    assert any_query.open_ids() == []


@pytest.mark.parametrize(
    "where",
    whole_but(
        ["log.after", "prepared.before", "end.before", "complete.before"],
        ["log.after", "end.before"],
        "a second each; the model has every order of events",
    ),
)
def test_who_loses_the_log_to_somebody_who_then_does_nothing_begins_again(
    any_query: Query, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    others = list[Claim]()
    ids = TransactionalIds(PREFIX, any_query.id)
    once_at(monkeypatch, where, lambda: others.append(any_query.log().claim(ids, soon())))
    report = any_query.run(0, "a", "b")
    assert (len(others), report.rows, report.own, report.committed) == (1, 2, True, 2)
    any_query.expect("a", "b")


@pytest.mark.parametrize("stored_before", [("a", "b"), ()])
@pytest.mark.parametrize("stored_now", [("a", "b"), ("a",), ()])
def test_an_earlier_attempts_rows_are_not_those_of_a_replay_whatever_brokers_reject_of_it(
    query: Query, cut: Cut, stored_before: tuple[str, ...], stored_now: tuple[str, ...]
) -> None:
    """With on.error=drop brokers may reject all rows of one attempt, which then has no transaction."""
    batch, passed = MicroBatch(query.id, 0), (TaskRows(0, 1, 1), TaskRows(1, 1, 2))
    with cut("prepared.after"):
        query.committer().commit(batch, query.write(*stored_before), tasks=passed)
    report = query.committer().commit(batch, query.write(*stored_now), tasks=passed)
    is_empty = not stored_before and not stored_now  # all rows were dropped, then and now
    assert (report.rows, report.own, report.is_first) == (len(stored_before), is_empty, True)
    query.expect(*stored_before)
    assert query.open_ids() == []


def test_what_lost_tasks_left_open_is_aborted_once_the_batch_is_complete(query: Query) -> None:
    query.write("lost")
    report = query.run(0, "a")
    assert report.aborted == 1
    query.expect("a")


@pytest.mark.fault("spark", "several queries with one prefix and one log")
def test_another_querys_transactions_are_left_alone(query: Query, new_topic: NewTopic) -> None:
    other = Query(query.kafka, query.client, new_topic(), query.log_topic)
    theirs = other.write("theirs")
    query.run(0, "mine")
    assert other.open_ids() == [each.handle.transactional_id for each in theirs]
    other.commit(0, theirs)
    other.expect("theirs")


@pytest.mark.fault("spark", "downtime over the transaction timeout")
def test_what_was_prepared_and_is_proved_to_be_aborted_is_written_again(any_query: Query, cut: Cut) -> None:
    own = any_query.write("a", "b")
    with cut("prepared.after"):
        any_query.commit(0, own)
    any_query.abort(own)
    report = any_query.run(0, "a", "b")
    assert (report.rows, report.own) == (2, True)
    any_query.expect("a", "b")


@pytest.mark.fault("spark", "downtime over the transaction timeout")
def test_when_only_a_part_can_be_committed_the_query_stops_and_says_which_rows_and_what_to_do(any_query: Query, cut: Cut) -> None:
    own = any_query.write("a", "b")
    with cut("prepared.after"):
        any_query.commit(0, own)
    any_query.abort(own[1:])
    for _ in range(2):  # it stays so
        with pytest.raises(CommitStoppedError) as caught:
            any_query.run(0, "a", "b")
        text, lost = str(caught.value), own[1].handle.transactional_id
        assert text.startswith(f"[COMMIT_STOPPED] batch 0 of {any_query.id}: some transactions of the batch are not proved")
        assert f"{lost}, 1 row in {any_query.topic} 0 (aborted)" in text
        assert f"`spark-kafka-sink transactions resolve --query {any_query.id} --batch 0 {OPTIONS}`" in text
        assert (caught.value.facts["reason"], caught.value.facts["batch"]) == ("UNRESOLVED", 0)
    any_query.expect("a")
    assert any_query.open_ids() == []


def test_a_batch_whose_transactions_ended_before_its_commit_is_given_up_and_can_be_written_again(query: Query) -> None:
    own = query.write("a", "b")
    query.abort(own[:1])
    with pytest.raises(
        BatchAbortedError, match=r"^\[BATCH_ABORTED\] batch 0 of .*: none of this run's rows is or will become visible"
    ) as caught:
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
    # The committer's own: the brokers of the test have another one.
    late_clock = SimpleNamespace(time_ns=lambda: late, monotonic=time.monotonic)
    monkeypatch.setattr("spark_kafka_sink.exactly_once.execution.time", late_clock)
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


def test_what_a_newer_batch_left_open_is_named_when_an_older_checkpoint_is_restored(query: Query) -> None:
    """Nobody else says so: the query stops at each start, and consumers wait."""
    query.run(0, "a")
    query.run(1, "b")
    newer = query.write("c", batch=2)  # its driver has died
    with pytest.raises(CommitStoppedError) as caught:
        query.run(0, "again")
    said = str(caught.value)
    assert query.open_ids() == [each.handle.transactional_id for each in newer]
    assert f"consumers wait for them: {newer[0].handle.transactional_id}, rows in {query.topic} 0. If no other" in said
    assert f"end them: `spark-kafka-sink transactions abort --query {query.id} {OPTIONS}`." in said
    assert "\nTo continue, the likeliest first:\n1. if an older checkpoint was restored: " in said


def test_a_log_that_knows_nothing_of_the_query_may_begin_where_it_is_told_to(query: Query) -> None:
    with pytest.raises(CommitStoppedError, match=r"set commit\.log\.start=5 for this start"):
        query.run(5, "a")
    assert query.commit(5, query.write("a", batch=5), start=5).rows == 1
    assert query.run(6, "b").rows == 1
    query.expect("a", "b")


def test_the_same_checkpoint_under_a_query_to_another_topic_stops_it(query: Query, new_topic: NewTopic) -> None:
    query.run(0, "a")
    other = new_topic()
    with pytest.raises(CommitStoppedError, match="to different topics: another query uses this checkpoint") as caught:
        query.commit(0, query.write("b", topic=other))
    assert caught.value.facts["reason"] == "OTHER_TOPICS"
    assert query.visible(other) == []
    assert query.open_ids() == []


def test_a_replay_all_of_whose_rows_are_dead_letters_completes_the_batch(query: Query, new_topic: NewTopic) -> None:
    """Brokers may reject a row in one attempt and not in another. The topic of dead letters does not tell batches apart."""
    query.run(0, "a")
    letters = new_topic()
    again = query.committer().commit(MicroBatch(query.id, 0), query.write("a", topic=letters), letters=letters)
    assert (again.rows, again.own) == (0, False)
    query.expect("a")
    assert query.visible(letters) == []


def test_a_replay_of_which_brokers_reject_other_rows_is_the_same_batch(any_query: Query) -> None:
    """With on.error=drop the second task's row was rejected at first, and is not in the replay."""
    batch, passed = MicroBatch(any_query.id, 0), (TaskRows(0, 1, 1), TaskRows(1, 1, 2))
    assert any_query.committer().commit(batch, any_query.write("a"), tasks=passed).rows == 1
    again = any_query.committer().commit(batch, any_query.write("a", "b"), tasks=passed)
    assert (again.rows, again.own) == (0, False)
    any_query.expect("a")
    with pytest.raises(CommitStoppedError, match="the batch had a different number of rows before") as caught:
        any_query.committer().commit(batch, any_query.write("a", "b"), tasks=(*passed, TaskRows(2, 1, 3)))
    assert "2 rows, of 3 that Spark passed to tasks, of this run are not visible" in str(caught.value)
    assert "is: batch 0, complete, 1 row, of 2 that Spark passed to tasks. Transactions: " in str(caught.value)
    assert any_query.open_ids() == []


def test_where_the_commit_log_cannot_be_used_nothing_stays_open_and_the_error_says_of_which_batch(
    query: Query, new_topic: NewTopic
) -> None:
    unusable = replace(query, log_topic=new_topic(2, config={"cleanup.policy": "delete"}))
    own = unusable.write("a", "b")
    with pytest.raises(OptionError, match=r"option commit\.log\.topic") as caught:
        unusable.commit(0, own)
    assert caught.value.__notes__ == [f"batch 0 of {query.id}: 2 rows of this run are not committed."]
    assert query.open_ids() == []


def test_a_commit_log_that_becomes_unusable_ends_nothing_that_may_be_prepared(query: Query, cut: Cut) -> None:
    committer = query.committer()
    own = query.write("a")
    with cut("prepared.after"):
        committer.commit(MicroBatch(query.id, 0), own)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OptionError) as caught:
        patch.setattr(CommitLog, "ensure", unusable)
        committer.commit(MicroBatch(query.id, 0), own)
    assert "1 row of this run, or some of them, may be committed" in caught.value.__notes__[0]
    assert query.open_ids() == [own[0].handle.transactional_id]
    committer.commit(MicroBatch(query.id, 0), own)
    query.expect("a")


def test_an_error_after_the_batch_was_prepared_does_not_say_that_nothing_is_committed(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TransactionClient.end_surely

    def end(client: TransactionClient, handles: Iterable[TransactionHandle], *args: Any) -> NoReturn:
        original(client, list(handles), *args)
        raise BrokerError("EndTxn answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED")

    monkeypatch.setattr(TransactionClient, "end_surely", end)
    with pytest.raises(BrokerError) as caught:
        query.run(0, "a", "b")
    assert "2 rows of this run, or some of them, may be committed" in caught.value.__notes__[0]
    query.expect("a", "b")


def test_of_rows_that_are_visible_in_part_nobody_says_that_none_are(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    own = query.write("a", "b")
    original = TransactionClient.end_surely

    def end(client: TransactionClient, handles: Iterable[TransactionHandle], *args: Any) -> dict[str, Ended]:
        query.abort(own[1:])
        return original(client, list(handles), *args)

    monkeypatch.setattr(TransactionClient, "end_surely", end)
    with pytest.raises(CommitStoppedError) as caught:
        query.commit(0, own)
    assert "are not visible" not in str(caught.value)


def test_what_somebody_else_has_put_into_another_partition_of_the_log_keeps_no_query_from_beginning(
    query: Query, new_topic: NewTopic
) -> None:
    mixed = replace(query, log_topic=new_topic(2, config={"cleanup.policy": "compact"}))
    others = Producer({"bootstrap.servers": query.kafka.bootstrap_servers})
    others.produce(mixed.log_topic, b"{}", b"user-7", partition=1 - partition_of(query.id, 2))
    assert others.flush(30) == 0
    mixed.run(0, "a")
    mixed.expect("a")
