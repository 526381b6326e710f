"""What recover, resolve and abort do about a batch, by what is known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.commit_rules import Commit, Done, Look, Read, View, Write
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused, Resolution, abort, batch_to_abort, resolve
from tests.exactly_once.examples import BATCH, BEFORE, OWN, handle, looked, prepared, read, record

C, A, U = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN
HANDLES = tuple(each.handle for each in BEFORE)


def seen(last: CommitRecord | None, *found: Outcome) -> View:
    """Each outcome is known, and the log was read again since."""
    view = read(last, ())
    if not found or last is None:
        return view
    ids = (each.transactional_id for each in last.to_commit)
    return view.with_outcomes(dict(zip(ids, found, strict=True))).with_read(last)


@pytest.mark.parametrize("resolution", Resolution)
def test_whatever_can_be_committed_is(resolution: Resolution) -> None:
    assert resolve(View(BATCH, ()), resolution) == Read()
    view = read(record(State.PREPARED), ())
    assert resolve(view, resolution) == Commit(HANDLES)
    assert resolve(view.with_outcomes({"before-0": C, "before-1": C}), resolution) == Write(State.COMPLETE, BEFORE, 20)


@pytest.mark.parametrize("resolution", Resolution)
def test_what_is_aborted_as_a_whole_is_written_again_by_the_next_run(resolution: Resolution) -> None:
    assert resolve(seen(record(State.PREPARED), A, A), resolution) == Write(State.ABORTED, BEFORE, 20)


@pytest.mark.parametrize("resolution", Resolution)
def test_the_log_is_read_again_before_anything_is_decided(resolution: Resolution) -> None:
    view = read(record(State.PREPARED), ()).with_outcomes({"before-0": C, "before-1": A})
    assert resolve(view, resolution) == Read()


def test_recover_changes_nothing_that_is_lost() -> None:
    assert resolve(seen(record(State.PREPARED), C, A), Resolution.RECOVER) == Refused(Refusal.UNRESOLVED, ("before-1",))


@pytest.mark.parametrize("other", [A, U])
def test_an_accepted_loss_completes_the_batch_and_says_what_is_missing(other: Outcome) -> None:
    expected = Write(State.COMPLETE, BEFORE, 20, ("before-0",), ("before-1",))
    assert resolve(seen(record(State.PREPARED), C, other), Resolution.ACCEPT_LOSS) == expected


def test_a_replay_says_what_is_to_be_written_again() -> None:
    expected = Write(State.REPLAY, BEFORE, 20, ("before-0",), ("before-1",))
    assert resolve(seen(record(State.PREPARED), C, A), Resolution.REPLAY) == expected


@pytest.mark.parametrize("outcomes", [(C, U), (A, U), (U, U)])
def test_what_is_unknown_is_never_replayed(outcomes: tuple[Outcome, Outcome]) -> None:
    step = resolve(seen(record(State.PREPARED), *outcomes), Resolution.REPLAY)
    assert isinstance(step, Refused)
    assert step.refusal is Refusal.UNKNOWN


def test_without_spark_partitions_nothing_is_replayed() -> None:
    last = record(State.PREPARED, transactions=tuple(replace(each, spark_partition=-1) for each in BEFORE))
    assert resolve(seen(last, C, A), Resolution.REPLAY) == Refused(Refusal.PARTITION_UNKNOWN, ("before-1",))


def test_a_report_has_no_spark_partition_and_is_in_the_way_of_no_replay() -> None:
    last = record(State.PREPARED, transactions=(*BEFORE, prepared("report", -1, records=0)))
    expected = Write(State.REPLAY, last.transactions, 20, ("before-0",), ("before-1", "report"))
    assert resolve(seen(last, C, A, U), Resolution.REPLAY) == expected


def test_what_a_replay_has_lost_again_is_replayed_and_what_it_kept_stays() -> None:
    last = replace(record(State.PREPARED, transactions=(*BEFORE, OWN[1])), committed=("before-0",))
    expected = Write(State.REPLAY, last.transactions, 30, ("before-0", "before-1"), ("own-1",))
    assert resolve(seen(last, C, A), Resolution.REPLAY) == expected


def test_a_loss_may_be_accepted_instead_of_a_replay() -> None:
    expected = Write(State.COMPLETE, BEFORE, 20, ("before-0",), ("before-1",))
    assert resolve(seen(record(State.REPLAY)), Resolution.ACCEPT_LOSS) == expected


@pytest.mark.parametrize(
    ("last", "refusal"),
    [
        (None, Refusal.NO_RECORD),
        (record(State.PREPARED, BATCH + 1), Refusal.MOVED_ON),
        (record(State.COMPLETE), Refusal.COMPLETE),
        (record(State.ABORTED), Refusal.ABORTED),
        (record(State.CLOSED), Refusal.CLOSED),
        (record(State.REPLAY), Refusal.TO_BE_REPLAYED),
    ],
)
def test_where_nothing_is_to_be_resolved_it_says_why(last: CommitRecord | None, refusal: Refusal) -> None:
    assert resolve(seen(last), Resolution.REPLAY) == Refused(refusal)


# Abort


def to_abort(last: CommitRecord | None, own: tuple[PreparedTransaction, ...] = ()) -> View:
    return read(last, own, batch_to_abort(last))


def test_what_is_open_is_in_the_log_before_it_is_aborted() -> None:
    assert abort(View(0, OWN)) == Read()
    view = to_abort(None, OWN)
    assert abort(view) == Look()
    orphan = prepared("orphan", -1, records=0, checksum=0)
    view = looked(view, (orphan.handle,))
    step = abort(view)
    assert step == Write(State.CLOSED, (*OWN, orphan), 0, aborted=("own-0", "own-1", "orphan"))
    closed = CommitRecord("query", 0, State.CLOSED, "closed", 0, (*OWN, orphan), (), ("own-0", "own-1", "orphan"))
    view = view.with_written(closed)
    assert abort(view) == Look()
    assert abort(looked(view, (orphan.handle,))) == Done(tuple(each.handle for each in (*OWN, orphan)))


def test_the_log_still_says_that_the_last_batch_is_complete() -> None:
    step = abort(looked(to_abort(record(State.COMPLETE)), (handle("orphan", records=0),)))
    orphan = prepared("orphan", -1, records=0, checksum=0)
    assert step == Write(State.COMPLETE, (*BEFORE, orphan), 20, (), ("orphan",))


def test_where_nothing_is_open_nothing_is_written() -> None:
    assert abort(looked(to_abort(None))) == Done(())
    assert abort(looked(to_abort(record(State.COMPLETE)))) == Done(())


@pytest.mark.parametrize(("state", "refusal"), [(State.PREPARED, Refusal.PREPARED), (State.REPLAY, Refusal.TO_BE_REPLAYED)])
def test_what_is_prepared_is_not_aborted(state: State, refusal: Refusal) -> None:
    assert abort(to_abort(record(state))) == Refused(refusal)


def test_a_job_that_is_complete_is_not_aborted() -> None:
    assert abort(to_abort(record(State.COMPLETE, 0), OWN)) == Refused(Refusal.COMPLETE)


def test_nothing_is_aborted_when_a_driver_has_gone_on() -> None:
    assert abort(read(record(State.COMPLETE, BATCH + 1), ())) == Refused(Refusal.MOVED_ON)
