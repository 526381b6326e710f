"""Somebody deletes the commit log's topic: the next commit says so in time, and the query can go on with a new one."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import BatchAbortedError, CommitStoppedError, OptionError
from spark_kafka_sink.exactly_once import commit_log_topic, failpoints
from spark_kafka_sink.exactly_once.commit_log_topic import DELETED_AFTER_S, HOW_TO_LOOK, CommitLogDeletedError
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from tests.exactly_once.opened import new_id, soon
from tests.exactly_once.queries import PREFIX, Cut, Query, once_at
from tests.tiers import whole_but

pytestmark = pytest.mark.slow


@pytest.fixture
def query(query: Query) -> Query:
    """With a log of its own."""
    return Query(query.kafka, query.client, query.topic, new_id("commits"))


def make_again(query: Query) -> None:
    """Also claims the new log, as another driver does, so that a running commit has to read again."""
    query.kafka.delete_topic(query.log_topic)
    query.kafka.create_topic(query.log_topic, 2, 1, {"cleanup.policy": "compact"})
    query.log().claim(TransactionalIds(PREFIX, query.id), soon())


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
@pytest.mark.parametrize("deleted_after_s", whole_but([1.0, DELETED_AFTER_S], [1.0], "waits for that long"))
def test_a_log_that_is_deleted_between_two_batches_is_told_in_30_seconds(
    query: Query, monkeypatch: pytest.MonkeyPatch, deleted_after_s: float
) -> None:
    committer = query.committer()
    committer.commit(MicroBatch(query.id, 0), query.write("a"))
    query.kafka.delete_topic(query.log_topic)
    own = query.write("b", "c", batch=1)
    with (
        monkeypatch.context() as patch,  # the leader of a new log may be unknown for longer
        pytest.raises(CommitLogDeletedError, match=f"the commit log, topic {query.log_topic}, was deleted") as caught,
    ):
        patch.setattr(commit_log_topic, "DELETED_AFTER_S", deleted_after_s)
        committer.commit(MicroBatch(query.id, 1), own)
    (note,) = caught.value.__notes__  # nothing was read, so another driver may have committed the batch
    assert note.startswith(f"batch 1 of {query.id}: 2 rows of this run are not committed, but rows of an earlier attempt may be")
    assert note.endswith(f"Look whether they are before you set commit.log.start=1, which writes them again: {HOW_TO_LOOK}.")
    assert query.open_ids() == []

    # The next run in the same process has a new log, says how to go on, and does.
    with pytest.raises(CommitStoppedError, match=r"3\. if its log was deleted: set commit\.log\.start=1 as well"):
        committer.commit(MicroBatch(query.id, 1), query.write("b", "c", batch=1))
    committer.commit(MicroBatch(query.id, 1), query.write("b", "c", batch=1), start=1)
    query.expect("a", "b", "c")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_when_it_is_deleted_in_the_middle_of_a_commit_nobody_says_that_the_rows_are_invisible(
    query: Query, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log_topic, "DELETED_AFTER_S", 1.0)
    committer, own = query.committer(), query.write("a")
    with cut("prepared.after"):
        committer.commit(MicroBatch(query.id, 0), own)
    query.kafka.delete_topic(query.log_topic)
    with pytest.raises(CommitLogDeletedError) as caught:
        committer.commit(MicroBatch(query.id, 0), own)
    (note,) = caught.value.__notes__
    assert "1 row of this run, or some of them, may be visible" in note
    assert query.open_ids() == [own[0].handle.transactional_id]  # a person decides
    query.abort(own)


@pytest.mark.parametrize("where", whole_but(["end.after", "complete.before"], ["end.after"], "between the same records"))
@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_one_that_is_made_again_in_the_middle_of_a_commit_does_not_say_that_its_rows_are_invisible(
    query: Query, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty log says of batch 0 that nothing is prepared, and the transactions are committed."""
    once_at(monkeypatch, where, lambda: make_again(query))
    committer, batch, own = query.committer(), MicroBatch(query.id, 0), query.write("a")
    for _ in range(2):  # repeated, as after a timeout
        with pytest.raises(
            CommitLogDeletedError, match=r"was deleted and made again.* Before you write any rows again"
        ) as caught:
            committer.commit(batch, own)
        (note,) = caught.value.__notes__
        assert "1 row of this run, or some of them, may be visible" in note
        assert "Look whether they are before you set commit.log.start=0, which writes them again." in note
    with pytest.raises(CommitLogDeletedError):
        committer.abort_job(batch, own)
    query.expect("a")

    # Another process has not seen the old log. The transactions say that they are committed.
    assert query.committer().abort_job(batch, own) == Refused(Refusal.COMMITTED)
    assert query.id not in query.log().last_records(soon()).records
    with pytest.raises(CommitLogDeletedError) as caught:
        query.commit(0, own)
    assert "1 row of this run, or some of them, may be visible" in caught.value.__notes__[0]

    # A person who has looked into the topic may write the batch again.
    assert committer.commit(batch, query.write("b"), start=0).rows == 1
    query.expect("a", "b")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_one_that_is_made_again_as_no_commit_log_does_not_hide_that_rows_may_be_visible(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_another() -> None:
        query.kafka.delete_topic(query.log_topic)
        query.kafka.create_topic(query.log_topic, 2, 1, {"cleanup.policy": "delete"})
        query.client.topic(query.log_topic, soon())
        TransactionClient(query.client).init_producer_id(TransactionalIds(PREFIX, query.id).commit_log, 60_000, soon())

    once_at(monkeypatch, "complete.before", make_another)
    with pytest.raises(CommitLogDeletedError, match="was deleted and made again") as caught:
        query.commit(0, query.write("a"))
    assert "cleanup.policy=delete" in str(caught.value.__cause__)
    assert "1 row of this run, or some of them, may be visible" in caught.value.__notes__[0]
    query.expect("a")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_rows_of_an_earlier_driver_may_be_visible_when_it_is_made_again_in_the_middle_of_a_commit(
    query: Query, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut("prepared.after"):
        query.commit(0, query.write("a"))
    once_at(monkeypatch, "complete.before", lambda: make_again(query))
    committer = query.committer()
    for _ in range(2):
        with pytest.raises(CommitLogDeletedError, match="was deleted and made again") as caught:
            committer.commit(MicroBatch(query.id, 0), query.write("a"))
        (note,) = caught.value.__notes__
        assert "1 row of this run is not committed, but rows of an earlier attempt may be visible" in note
        assert "Look whether they are before you set commit.log.start=0" in note
    assert query.open_ids() == []
    query.expect("a")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_a_batch_that_another_driver_has_written_again_is_not_stopped(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    committer, batch, first = query.committer(), MicroBatch(query.id, 0), query.write("a")
    committer.commit(batch, first)
    make_again(query)
    with pytest.raises(CommitLogDeletedError):
        committer.commit(batch, query.write("a"))
    assert query.commit(0, query.write("b"), start=0).rows == 1
    with pytest.raises(CommitLogDeletedError):  # of this run it is known that it was prepared
        committer.commit(batch, first)
    report = committer.commit(batch, query.write("c"))
    assert (report.rows, report.own) == (0, False)
    assert "Rows of an earlier attempt may be visible as well" in caplog.text
    assert query.open_ids() == []
    query.expect("a", "b")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_a_new_run_of_a_batch_that_was_stopped_leaves_nothing_open(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    once_at(monkeypatch, "complete.before", lambda: make_again(query))
    committer, batch = query.committer(), MicroBatch(query.id, 0)
    for run in ("a", "b"):
        with pytest.raises(CommitLogDeletedError) as caught:
            committer.commit(batch, query.write(run))
        assert query.open_ids() == []
    assert "1 row of this run is not committed, but rows of an earlier attempt may be visible" in caught.value.__notes__[0]
    query.expect("a")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_what_was_prepared_with_rows_that_are_visible_is_not_aborted_though_the_log_has_no_record(query: Query) -> None:
    own = query.write("a", "b")
    half, other = (each.handle for each in own)
    TransactionClient(query.client).end([half], True, soon())  # as a driver did that died halfway, and then the log was deleted
    with pytest.raises(CommitLogDeletedError) as caught:
        query.commit(0, own)
    assert "2 rows of this run, or some of them, may be visible" in caught.value.__notes__[0]
    assert query.open_ids() == [other.transactional_id]  # a person decides
    query.abort(own[1:])


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_what_was_found_committed_is_not_forgotten_when_the_commit_is_repeated(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log_topic, "DELETED_AFTER_S", 1.0)
    committer, batch, own = query.committer(), MicroBatch(query.id, 0), query.write("a", "b")
    TransactionClient(query.client).end([own[0].handle], True, soon())
    for delete in (query.kafka.delete_topic, str):
        with pytest.raises(CommitLogDeletedError) as caught:
            committer.commit(batch, own)
        assert "2 rows of this run, or some of them, may be visible" in caught.value.__notes__[0]
        assert query.open_ids() == [own[1].handle.transactional_id]
        delete(query.log_topic)
    query.abort(own[1:])


@pytest.mark.parametrize("is_closed", [False, True], ids=["empty", "closed by an operator"])
@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_a_first_batch_that_is_visible_is_not_written_again_by_a_process_that_has_not_seen_the_old_log(
    query: Query, is_closed: bool
) -> None:
    """The driver died before Spark recorded the batch, so the next run writes it again."""
    query.run(0, "a", "b")
    make_again(query)
    if is_closed:
        left = query.write("a")
        claim = query.log().claim(TransactionalIds(PREFIX, query.id), soon())
        aborted = (left[0].handle.transactional_id,)
        claim.write(CommitRecord(query.id, 0, State.CLOSED, "closed", 0, left, aborted=aborted), soon())
        query.abort(left)
    for _ in range(2):
        with pytest.raises(
            CommitLogDeletedError, match=f"no record of query {query.id}, but 2 of its transactions are committed"
        ) as caught:
            query.commit(0, query.write("a", "b"))
        (note,) = caught.value.__notes__
        assert "2 rows of this run are not committed, but rows of an earlier attempt may be visible" in note
        assert "set commit.log.start=0" in note
        assert query.open_ids() == []
    query.expect("a", "b")

    # A person who has looked into the topic may write the batch again.
    assert query.commit(0, query.write("c"), start=0).rows == 1
    query.expect("a", "b", "c")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_a_person_is_told_to_look_only_after_open_transactions_have_ended_because_these_hide_committed_rows(query: Query) -> None:
    left, done = query.write("left"), query.write("a")
    TransactionClient(query.client).end([done[0].handle], True, soon())
    with pytest.raises(CommitLogDeletedError) as caught:
        query.commit(0, query.write("a"))
    assert HOW_TO_LOOK in str(caught.value)
    assert query.visible() == []
    query.abort(left)
    query.expect("a")


def test_a_first_batch_of_which_nothing_was_committed_is_written_again(query: Query) -> None:
    query.abort(query.write("a", "b"))
    assert query.run(0, "a", "b").rows == 2
    query.expect("a", "b")


def test_a_first_batch_that_another_driver_commits_in_between_is_no_sign_of_a_deleted_log(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, own = query.write("a"), query.write("a")
    once_at(monkeypatch, "log.after", lambda: query.commit(0, other))
    report = query.commit(0, own)
    assert (report.rows, report.own) == (0, False)
    assert query.open_ids() == []
    query.expect("a")


def test_a_replay_that_an_operator_asks_for_during_a_commit_is_no_sign_of_a_deleted_log(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two transactions times out after the record was written, and the record keeps the other one."""
    own = query.write("a", "b")
    kept, lost = (each.handle.transactional_id for each in own)
    reached: list[str] = []

    def reach(name: str, batch: int) -> None:
        if name == "prepared.after":
            reached.append(name)
            query.abort(own[1:])
        elif name == "log.before" and reached == ["prepared.after"]:
            reached.append(name)
            claim = query.log().claim(TransactionalIds(PREFIX, query.id), soon())
            claim.write(CommitRecord(query.id, 0, State.REPLAY, "replay", 2, own, (kept,), (lost,)), soon())

    monkeypatch.setattr(failpoints, "reach", reach)
    with pytest.raises(BatchAbortedError) as caught:
        query.commit(0, own)
    assert "1 row of this run is visible, and none of the others is or will become visible" in str(caught.value)
    assert caught.value.facts["rows"] == 1
    assert query.commit(0, query.write("a", "b")).rows == 2
    query.expect("a", "b")


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_a_job_whose_record_was_not_written_when_the_log_was_deleted_leaves_nothing_open(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log_topic, "DELETED_AFTER_S", 1.0)
    query.id = MicroBatch.of_new_job().query_id
    own = query.write("a")
    once_at(monkeypatch, "prepared.before", lambda: query.kafka.delete_topic(query.log_topic))
    with pytest.raises(CommitLogDeletedError) as caught:
        query.commit(0, own)
    assert caught.value.__notes__ == [f"batch 0 of {query.id}: 1 row of this run is not committed."]
    assert query.open_ids() == []


@pytest.mark.parametrize("is_known", [False, True], ids=["during the abort", "before it"])
@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_a_job_whose_rows_are_committed_is_not_left_with_a_record_that_says_none_is_visible(
    query: Query, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.id = MicroBatch.of_new_job().query_id
    own, ids = query.write("a"), TransactionalIds(PREFIX, query.id)
    handles = tuple(each.handle for each in own)
    if is_known:
        aborted = (handles[0].transactional_id,)
        query.log().claim(ids, soon()).write(CommitRecord(query.id, 0, State.CLOSED, "closed", 0, own, aborted=aborted), soon())
        TransactionClient(query.client).end(handles, True, soon())

    once_at(monkeypatch, "sweep.before", lambda: TransactionClient(query.client).end(handles, True, soon()))
    assert query.committer().abort_job(MicroBatch(query.id, 0), own) == Refused(Refusal.COMMITTED)
    assert query.id not in query.log().last_records(soon()).records


@pytest.mark.fault("spark", "the commit log's topic is deleted between batches")
def test_one_that_somebody_makes_again_is_checked_as_at_first(query: Query) -> None:
    """Brokers may create topics for any client that asks for one, and those delete old records."""
    committer = query.committer()
    committer.commit(MicroBatch(query.id, 0), query.write("a"))
    query.kafka.delete_topic(query.log_topic)
    query.kafka.create_topic(query.log_topic, 2, 1, {"cleanup.policy": "delete"})
    with pytest.raises((CommitStoppedError, OptionError)):  # the first commit may learn of it while it reads
        committer.commit(MicroBatch(query.id, 1), query.write("b", batch=1))
    with pytest.raises(OptionError, match=r"option commit\.log\.topic: topic .* has cleanup\.policy=delete"):
        committer.commit(MicroBatch(query.id, 1), query.write("b", batch=1), start=1)
    assert query.open_ids() == []
    query.expect("a")
