"""What a commit does next, by what it knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once import commit_rules
from spark_kafka_sink.exactly_once.commit_record import NO_ID, CommitRecord, PreparedTransaction, State, TaskRows
from spark_kafka_sink.exactly_once.commit_rules import (
    Commit,
    Done,
    GiveUp,
    Look,
    Read,
    Reason,
    Step,
    Stop,
    View,
    Write,
    commit_timeout_ms,
    decide,
    ms_to_prepare,
)
from spark_kafka_sink.exactly_once.proof import Outcome, TransactionDescription
from tests.exactly_once.examples import (
    BATCH,
    BEFORE,
    BEGUN_MS,
    OWN,
    TIMEOUT_MS,
    first_step,
    handle,
    looked,
    ongoing,
    prepared,
    read,
    record,
    table,
)
from tests.limits import UNMEASURED, costs_at_most

PAGE = Path(commit_rules.__file__).with_name("README.md")
C, A, U = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN
OWN_HANDLES = tuple(each.handle for each in OWN)
BEFORE_HANDLES = tuple(each.handle for each in BEFORE)


# The last record, and the batch


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (State.COMPLETE, ("stop: BEHIND", "done", "look, prepare", "stop: GAP", "look, prepare")),
        (State.PREPARED, ("stop: BEHIND", "commit what it lists", "stop: UNFINISHED", "stop: UNFINISHED", "stop: UNFINISHED")),
        (State.ABORTED, ("stop: BEHIND", "look, prepare", "stop: UNFINISHED", "stop: UNFINISHED", "look, prepare")),
        (State.CLOSED, ("stop: BEHIND", "look, prepare", "stop: UNFINISHED", "stop: UNFINISHED", "look, prepare")),
        (State.REPLAY, ("stop: BEHIND", "look, prepare", "stop: UNFINISHED", "stop: UNFINISHED", "stop: UNFINISHED")),
    ],
)
def test_the_last_record_and_the_batch_say_how_to_go_on(state: State, steps: tuple[str, ...]) -> None:
    found = [first_step(state, later) for later in (-1, 0, 1, 2)]
    assert (*found, first_step(state, 2, is_start=True)) == steps


def test_the_page_has_the_table_that_the_rules_make() -> None:
    assert table() in PAGE.read_text()


@pytest.mark.parametrize(("batch", "start", "step"), [(0, None, Look), (1, None, Stop), (5, 5, Look), (6, 5, Stop), (0, 5, Look)])
def test_without_a_record_only_the_first_batch_may_be_committed_or_the_one_where_the_log_is_to_begin(
    batch: int, start: int | None, step: type
) -> None:
    assert type(decide(read(None, batch=batch, start=start))) is step


def test_a_replay_with_another_number_of_rows_is_of_another_checkpoint() -> None:
    other = (*OWN, prepared("own-2", 2, records=1))
    for state in (State.PREPARED, State.COMPLETE):
        assert decide(read(record(state), other)) == Stop(Reason.OTHER_ROWS, tuple(each.handle for each in other))


PASSED = (TaskRows(0, 10, 100), TaskRows(1, 12, 101), TaskRows(2, 3, 102))
"""The third task's rows are all rejected, and two of the second's."""


@pytest.mark.parametrize("state", [State.PREPARED, State.COMPLETE])
def test_a_replay_is_the_same_batch_though_brokers_reject_other_rows(state: State) -> None:
    fewer, more = (
        replace(record(state), tasks=PASSED),
        record(state, transactions=(BEFORE[0], prepared("before-1", 1, records=15))),
    )
    step = Commit(BEFORE_HANDLES) if state is State.PREPARED else Done(OWN_HANDLES)
    all_stored = (OWN[0], prepared("own-1", 1, records=12), prepared("own-2", 2, records=3))
    assert decide(read(fewer, OWN, tasks=PASSED)) == step
    assert not isinstance(decide(read(fewer, all_stored, tasks=PASSED)), Stop)
    assert not isinstance(decide(read(more, OWN, tasks=PASSED)), Stop)


def test_a_replay_to_whose_tasks_spark_passes_another_number_of_rows_is_of_another_checkpoint() -> None:
    last = replace(record(State.COMPLETE), tasks=PASSED)
    for tasks in ((*PASSED, TaskRows(3, 1, 5)), PASSED[:2], ()):
        assert decide(read(last, OWN, tasks=tasks)) == Stop(Reason.OTHER_ROWS, OWN_HANDLES)


def test_an_older_versions_record_that_does_not_tell_of_dropped_rows_is_compared_by_what_was_stored() -> None:
    assert decide(read(record(State.COMPLETE), OWN, tasks=PASSED)) == Done(OWN_HANDLES)
    one_more = (OWN[0], prepared("own-1", 1, records=11))
    assert decide(read(record(State.COMPLETE), one_more, tasks=PASSED)) == Stop(
        Reason.OTHER_ROWS, tuple(each.handle for each in one_more)
    )


def test_own_transactions_that_the_record_lists_are_not_aborted() -> None:
    mixed = (BEFORE[0], OWN[1])
    assert decide(read(record(State.COMPLETE), mixed)) == Done((OWN[1].handle,))


def test_a_transaction_of_the_same_id_with_another_epoch_is_another_one() -> None:
    again = (prepared("before-0", epoch=2, records=20),)
    assert decide(read(record(State.COMPLETE), again)) == Done((again[0].handle,))


# Look


def test_the_record_says_what_spark_passed_to_the_tasks_if_some_of_it_is_not_stored() -> None:
    last = record(State.COMPLETE, BATCH - 1)
    assert decide(looked(read(last, tasks=PASSED))) == Write(State.PREPARED, OWN, 20, tasks=PASSED)
    all_stored = tuple(TaskRows(each.spark_partition, 10, each.checksum) for each in OWN)
    assert decide(looked(read(last, tasks=all_stored))) == Write(State.PREPARED, OWN, 20)


def test_what_the_record_says_of_the_tasks_stays_in_it() -> None:
    last = replace(record(State.PREPARED), tasks=PASSED)
    done = read(last, tasks=PASSED).with_outcomes({"before-0": C, "before-1": C})
    assert decide(done) == Write(State.COMPLETE, BEFORE, 20, tasks=PASSED)
    aborted = read(last, tasks=PASSED).with_outcomes({"before-0": A, "before-1": A}).with_read(last)
    assert decide(aborted) == Write(State.ABORTED, BEFORE, 20, tasks=PASSED)


def test_a_batch_without_rows_is_prepared_and_complete_without_any_transaction() -> None:
    view = looked(read(record(State.COMPLETE, BATCH - 1), ()))
    assert decide(view) == Write(State.PREPARED, (), 0)
    view = view.with_written(record(State.PREPARED, transactions=()))
    assert decide(view) == Commit(())
    assert decide(view.with_outcomes({})) == Write(State.COMPLETE, (), 0)


@pytest.mark.parametrize(
    "said",
    [
        None,
        TransactionDescription("CompleteAbort", 4711, 0, TIMEOUT_MS, -1),
        TransactionDescription("PrepareCommit", 4711, 0, TIMEOUT_MS, BEGUN_MS),
        TransactionDescription("Ongoing", 4711, 1, TIMEOUT_MS, BEGUN_MS),
        TransactionDescription("Ongoing", 4712, 0, TIMEOUT_MS, BEGUN_MS),
    ],
)
def test_it_gives_up_when_one_of_its_own_is_not_open_any_more(said: TransactionDescription | None) -> None:
    described = {"own-0": ongoing(OWN_HANDLES[0])} | ({} if said is None else {"own-1": said})
    last = record(State.COMPLETE, BATCH - 1)
    view = read(last).with_look(described, (), BEGUN_MS)
    assert decide(view) == Read()
    assert decide(view.with_read(last)) == GiveUp(OWN_HANDLES, (OWN_HANDLES[1],))


@pytest.mark.fault("spark", "a paused driver whose successor has committed reads the log before BATCH_ABORTED")
def test_it_does_not_give_up_a_batch_that_another_driver_has_committed_meanwhile() -> None:
    view = read(record(State.COMPLETE, BATCH - 1)).with_look({}, (), BEGUN_MS)
    assert decide(view.with_read(record(State.COMPLETE))) == Done(OWN_HANDLES)
    assert decide(view.with_read(record(State.PREPARED))) == Commit(BEFORE_HANDLES)


def test_the_first_batch_is_given_up_when_the_log_has_no_record_a_second_time() -> None:
    view = read(None, batch=0).with_look({}, (), BEGUN_MS)
    assert decide(view) == Read()
    assert decide(view.with_read(None)) == GiveUp(OWN_HANDLES, OWN_HANDLES)


@pytest.mark.parametrize(
    ("timeout_ms", "margin_ms"), [(TIMEOUT_MS, TIMEOUT_MS // 4), (3_600_000, 300_000), (60_000, 15_000), (2_000, 500)]
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_when_the_batch_is_prepared_half_of_the_margin_is_left(timeout_ms: int, margin_ms: int, share: float) -> None:
    age_ms = int((timeout_ms - margin_ms) * share)
    described = {each.transactional_id: replace(ongoing(each), timeout_ms=timeout_ms) for each in OWN_HANDLES}
    view = read(record(State.COMPLETE, BATCH - 1)).with_look(described, (), BEGUN_MS + age_ms)
    write = decide(view)
    assert isinstance(write, Write)
    assert ms_to_prepare(view, write) == timeout_ms - age_ms - margin_ms // 2


def test_the_oldest_transaction_that_is_to_be_committed_says_how_long_a_batch_may_take_to_be_prepared() -> None:
    oldest, other = OWN_HANDLES
    described = {
        oldest.transactional_id: ongoing(oldest),
        other.transactional_id: ongoing(other, BEGUN_MS + 5_000),
        "of-no-record": ongoing(handle("of-no-record"), BEGUN_MS - 500_000),
    }
    view = read(record(State.COMPLETE, BATCH - 1)).with_look(described, (), BEGUN_MS + 10_000)
    write = decide(view)
    assert isinstance(write, Write)
    assert ms_to_prepare(view, write) == TIMEOUT_MS - 10_000 - TIMEOUT_MS // 8
    kept = replace(write, committed=(oldest.transactional_id,))
    assert ms_to_prepare(view, kept) == TIMEOUT_MS - 5_000 - TIMEOUT_MS // 8


@pytest.mark.parametrize("timeout_ms", [1_000, 60_000, TIMEOUT_MS, 3_600_000])
def test_a_commit_that_is_begun_ends_while_its_transactions_live(timeout_ms: int) -> None:
    """Else it could commit some of them, and find the others timed out."""
    oldest_ms = timeout_ms - commit_timeout_ms(timeout_ms)
    described = {each.transactional_id: replace(ongoing(each), timeout_ms=timeout_ms) for each in OWN_HANDLES}
    last = record(State.COMPLETE, BATCH - 1)
    assert isinstance(decide(read(last).with_look(described, (), BEGUN_MS + oldest_ms)), Write)
    assert decide(read(last).with_look(described, (), BEGUN_MS + oldest_ms + 1)) == Read()


@pytest.mark.parametrize(("known", "is_whole"), [("0-7", True), ("0-9", True), ("1-7", False), ("0-6,8", False), ("", False)])
def test_a_transaction_that_lacks_a_partition_of_its_task_began_again_and_is_given_up(known: str, is_whole: bool) -> None:
    """With transactions of version 1 an abort leaves the epoch as it is, and the next partition begins the transaction again."""
    own = tuple(replace(each, handle=replace(each.handle, partitions=(("events", "0-7"),))) for each in OWN)
    partitions = (("events", known), ("other", "3")) if known else (("other", "3"),)
    view = read(None, own, batch=0)
    described = {each.transactional_id: replace(ongoing(each), partitions=partitions) for each in view.own_handles}
    step = decide(view.with_look(described, view.own_handles, BEGUN_MS + 1_000).with_read(None))

    assert isinstance(step, Write if is_whole else GiveUp)


# Commit, and what it proves


def test_who_comes_commits_what_is_prepared_and_not_its_own() -> None:
    view = read(record(State.PREPARED))
    assert decide(view) == Commit(BEFORE_HANDLES)
    assert decide(view.with_outcomes({"before-0": C, "before-1": C})) == Write(State.COMPLETE, BEFORE, 20)


def outcome_view(first: Outcome, second: Outcome) -> View:
    return read(record(State.PREPARED)).with_outcomes({"before-0": first, "before-1": second})


@pytest.mark.parametrize("outcomes", [(A, A), (C, A), (C, U), (U, U), (A, U)])
def test_it_claims_and_reads_the_log_again_before_it_judges_an_answer_that_is_not_none(outcomes: tuple[Outcome, Outcome]) -> None:
    view = outcome_view(*outcomes)
    assert decide(view) == Read()
    assert decide(view.with_read(record(State.COMPLETE))) == Done(OWN_HANDLES)


def test_rows_that_went_with_their_topic_stop_the_query_once_the_others_are_visible() -> None:
    ids, gone = (("other", str(UUID(int=1))),), ("topic", NO_ID)
    prepared = replace(record(State.PREPARED), topic_ids=(*ids, ("topic", str(UUID(int=2)))))
    assert decide(read(prepared)) == Commit(BEFORE_HANDLES)
    view = read(prepared).with_gone(frozenset({"topic"}))
    assert decide(view) == Write(State.PREPARED, BEFORE, 20, topic_ids=(*ids, gone))
    view = view.with_written(replace(prepared, topic_ids=(*ids, gone)))
    assert decide(view) == Commit(BEFORE_HANDLES)
    assert decide(view.with_outcomes({"before-0": C, "before-1": C})) == Write(State.COMPLETE, BEFORE, 20, topic_ids=(gone,))
    view = read(replace(record(State.COMPLETE), topic_ids=(gone,)))
    told = record(State.COMPLETE)
    assert decide(view) == Write(State.COMPLETE, BEFORE, 20)
    assert decide(view.with_written(told)) == decide(view.begun().with_read(told)) == Stop(Reason.TOPIC_REPLACED, OWN_HANDLES)
    assert decide(read(told)) == Done(OWN_HANDLES)


@pytest.mark.parametrize("outcomes", [(C, A), (C, U), (U, U), (A, U)])
def test_it_stops_when_some_are_not_committed_and_not_all_are_aborted(outcomes: tuple[Outcome, Outcome]) -> None:
    view = outcome_view(*outcomes).with_read(record(State.PREPARED))
    assert decide(view) == Stop(Reason.UNRESOLVED, OWN_HANDLES)


def test_an_outcome_that_nobody_told_is_unknown() -> None:
    for known in (A, C):
        view = read(record(State.PREPARED)).with_outcomes({"before-0": known}).with_read(record(State.PREPARED))
        assert decide(view) == Stop(Reason.UNRESOLVED, OWN_HANDLES)


# Orphans


def test_what_was_listed_before_prepared_is_ended_after_complete() -> None:
    orphan = handle("orphan")
    view = looked(read(record(State.COMPLETE, BATCH - 1)), (orphan,)).with_written(record(State.PREPARED, transactions=OWN))
    assert decide(view) == Commit(OWN_HANDLES)
    view = view.with_outcomes({"own-0": C, "own-1": C})
    assert decide(view) == Write(State.COMPLETE, OWN, 20)
    assert decide(view.with_written(record(State.COMPLETE, transactions=OWN))) == Done((orphan,))


def test_a_batch_that_is_written_again_is_looked_at_again() -> None:
    view = looked(read(record(State.COMPLETE, BATCH - 1))).with_written(record(State.PREPARED, transactions=OWN))
    view = view.with_outcomes({"own-0": A, "own-1": A}).with_read(record(State.PREPARED, transactions=OWN))
    assert decide(view) == Write(State.ABORTED, OWN, 20)
    assert decide(view.with_written(record(State.ABORTED, transactions=OWN))) == Look()


# Aborted on request


def with_aborted(state: State, batch: int) -> CommitRecord:
    transactions = (*BEFORE, OWN[1])
    return replace(record(state, batch, BEFORE), transactions=transactions, aborted=("own-1",))


@pytest.mark.parametrize(("state", "batch"), [(State.COMPLETE, BATCH - 1), (State.ABORTED, BATCH), (State.CLOSED, BATCH)])
def test_it_stops_when_somebody_wants_one_of_its_own_aborted(state: State, batch: int) -> None:
    assert isinstance(decide(looked(read(with_aborted(state, batch)))), Stop)
    others = (prepared("new-0"), prepared("new-1", 1))
    assert decide(looked(read(with_aborted(state, batch), others))) == Write(State.PREPARED, others, 20)


# Replay


def test_a_replay_prepares_only_what_was_lost() -> None:
    view = looked(read(record(State.REPLAY)))
    assert decide(view) == Write(State.PREPARED, (BEFORE[0], OWN[1]), 20, committed=("before-0",))


REPORT = prepared("report", -1, records=0, checksum=0)
"""The transaction of a batch's report, which is prepared with those of its tasks."""


def test_a_report_is_no_row_and_makes_no_record_longer() -> None:
    assert decide(looked(read(None, (*OWN, REPORT), batch=0))) == Write(State.PREPARED, (*OWN, REPORT), 20)


@pytest.mark.parametrize("own", [OWN, (*OWN, REPORT)])
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_replay_is_proved_by_its_rows_and_has_no_report_of_its_own(own: tuple[PreparedTransaction, ...], is_lost: bool) -> None:
    before = replace(REPORT, handle=replace(REPORT.handle, transactional_id="before-report"))
    last = replace(record(State.REPLAY, transactions=(*BEFORE, before)), rows=20)
    last = last if is_lost else replace(last, committed=("before-0", "before-report"), aborted=("before-1",))
    kept = (BEFORE[0],) if is_lost else (BEFORE[0], before)
    ids = tuple(each.handle.transactional_id for each in kept)
    assert decide(looked(read(last, own))) == Write(State.PREPARED, (*kept, OWN[1]), 20, committed=ids)


def test_a_report_that_has_timed_out_is_left_out_and_the_rows_are_prepared() -> None:
    view = looked(read(None, (*OWN, REPORT), batch=0))
    assert view.described is not None
    lost = replace(view, described={each: said for each, said in view.described.items() if each != "report"})
    assert decide(lost) == Read()
    assert decide(replace(lost, reread=True)) == Write(State.PREPARED, OWN, 20)


@pytest.mark.parametrize("outcome", [C, A, U])
def test_the_rows_decide_about_a_batch_and_not_its_report(outcome: Outcome) -> None:
    last = record(State.PREPARED, transactions=(*OWN, REPORT))
    of_rows = {each.handle.transactional_id: C for each in OWN}
    lost = () if outcome is C else ("report",)
    complete = replace(read(last), outcomes={**of_rows, "report": outcome}, reread=True)
    assert decide(complete) == Write(State.COMPLETE, last.transactions, 20, aborted=lost)
    aborted = replace(complete, outcomes={**dict.fromkeys(of_rows, A), "report": outcome})
    assert decide(aborted) == Write(State.ABORTED, last.transactions, 20)


def test_a_topic_of_reports_does_not_make_two_queries_one() -> None:
    def with_topic(name: str) -> tuple[PreparedTransaction, ...]:
        topics = (name, name, "reports")
        both = zip((*OWN, REPORT), topics, strict=True)
        return tuple(replace(each, handle=replace(each.handle, partitions=((topic, "0"),))) for each, topic in both)

    last = record(State.COMPLETE, transactions=with_topic("orders"))
    step = decide(read(replace(last, rows=20), with_topic("clicks")))
    assert isinstance(step, Stop)
    assert step.reason is Reason.OTHER_TOPICS


def test_a_replay_keeps_the_note_of_a_topic_that_was_replaced() -> None:
    gone = ("topic", NO_ID)
    view = looked(read(replace(record(State.REPLAY), topic_ids=(gone,))))
    assert decide(view) == Write(State.PREPARED, (BEFORE[0], OWN[1]), 20, committed=("before-0",), topic_ids=(gone,))


def test_a_replay_commits_only_what_was_lost_and_aborts_what_was_written_beside_it() -> None:
    last = replace(record(State.PREPARED, transactions=(BEFORE[0], OWN[1])), committed=("before-0",))
    view = looked(read(record(State.REPLAY))).with_written(last)
    assert decide(view) == Commit((OWN[1].handle,))
    complete = replace(last, state=State.COMPLETE)
    assert decide(view.with_written(complete)) == Done((OWN[0].handle,))


def test_a_replay_whose_transactions_were_aborted_is_replayed_again() -> None:
    last = replace(record(State.PREPARED, transactions=(BEFORE[0], OWN[1])), committed=("before-0",))
    view = read(last).with_outcomes({"own-1": A}).with_read(last)
    assert decide(view) == Write(State.REPLAY, last.transactions, 20, ("before-0",), ("own-1",))


def test_a_replay_is_proved_by_what_spark_passed_whatever_brokers_reject_of_it() -> None:
    last = replace(record(State.REPLAY), tasks=PASSED)
    more = (OWN[0], prepared("own-1", 1, checksum=101, records=11), prepared("own-2", 2, checksum=102, records=3))
    assert decide(looked(read(last, more, tasks=PASSED))) == Write(
        State.PREPARED, (BEFORE[0], *more[1:]), 24, committed=("before-0",), tasks=PASSED
    )
    assert decide(looked(read(last, (OWN[0],), tasks=PASSED))) == Write(
        State.PREPARED, (BEFORE[0],), 10, committed=("before-0",), tasks=PASSED
    )
    none_was_rejected = record(State.REPLAY)
    passed = (TaskRows(0, 10, 100), TaskRows(1, 10, 101))
    fewer = (OWN[0], prepared("own-1", 1, checksum=101, records=9))
    assert decide(looked(read(none_was_rejected, fewer, tasks=passed))) == Write(
        State.PREPARED, (BEFORE[0], fewer[1]), 19, committed=("before-0",), tasks=passed
    )


@pytest.mark.parametrize("tasks", [PASSED[:2], (*PASSED[:2], TaskRows(2, 3, 999)), (*PASSED[:2], TaskRows(2, 4, 102)), ()])
def test_other_rows_of_a_task_whose_rows_were_all_rejected_are_not_replayed(tasks: tuple[TaskRows, ...]) -> None:
    last = replace(record(State.REPLAY), tasks=PASSED)
    assert decide(looked(read(last, OWN, tasks=tasks))) == Stop(Reason.NOT_REPLAYED, OWN_HANDLES)


def test_an_older_versions_replay_is_proved_by_what_was_stored() -> None:
    last = record(State.REPLAY)
    assert decide(looked(read(last, OWN, tasks=PASSED))) == Write(
        State.PREPARED, (BEFORE[0], OWN[1]), 20, committed=("before-0",), tasks=PASSED
    )


@pytest.mark.parametrize(
    "own",
    [
        (OWN[0],),
        (*OWN, prepared("own-2", 2)),
        (OWN[0], prepared("own-1", 1, checksum=999)),
        (OWN[0], prepared("own-1", 1, checksum=101, records=11)),
        (OWN[0], prepared("own-1", 2, checksum=101)),
    ],
)
def test_rows_that_are_not_proved_to_be_the_same_are_not_replayed(own: tuple[PreparedTransaction, ...]) -> None:
    assert decide(looked(read(record(State.REPLAY), own))) == Stop(Reason.NOT_REPLAYED, tuple(each.handle for each in own))


def test_where_it_is_not_known_which_partition_was_whose_nothing_is_replayed() -> None:
    before = tuple(replace(each, spark_partition=-1) for each in BEFORE)
    own = tuple(replace(each, spark_partition=-1) for each in OWN)
    step = decide(looked(read(record(State.REPLAY, transactions=before), own)))
    assert isinstance(step, Stop)
    assert step.reason is Reason.NOT_REPLAYED


# Whatever is known

outcomes = st.dictionaries(st.sampled_from(["before-0", "before-1"]), st.sampled_from(Outcome))
lasts = st.none() | st.builds(
    record, st.sampled_from(State), st.integers(0, 9), st.sampled_from([(), BEFORE, OWN, (*BEFORE, *OWN)])
)


@st.composite
def views(draw: st.DrawFn) -> View:
    view = read(
        draw(lasts), draw(st.sampled_from([(), OWN, BEFORE])), draw(st.integers(0, 9)), draw(st.none() | st.integers(0, 9))
    )
    if draw(st.booleans()):
        view = looked(view, (handle("orphan"),), draw(st.integers(0, 2 * TIMEOUT_MS)))
    if draw(st.booleans()):
        view = view.with_outcomes(draw(outcomes))
        if draw(st.booleans()) and view.last is not None:
            view = view.with_read(view.last)
    return view


@given(views())
def test_nothing_is_aborted_that_the_record_wants_committed(view: View) -> None:
    step = decide(view)
    if isinstance(step, Done | GiveUp | Stop) and view.last is not None and view.last.state is State.PREPARED:
        is_of_last = view.last.batch == view.batch
        assert not is_of_last or not set(step.leftovers) & set(view.last.handles)


@given(views())
def test_it_ends_orphans_only_when_the_batch_is_complete(view: View) -> None:
    step = decide(view)
    if isinstance(step, Done | GiveUp | Stop) and handle("orphan") in step.leftovers:
        assert view.last is not None
        assert (view.last.batch, view.last.state) == (view.batch, State.COMPLETE)


@given(views())
def test_it_never_says_of_an_unknown_outcome_that_it_is_aborted(view: View) -> None:
    step = decide(view)
    if isinstance(step, Write) and step.state in {State.ABORTED, State.REPLAY}:
        assert view.last is not None
        assert view.outcomes is not None
        assert {view.outcomes.get(each.transactional_id) for each in view.last.to_commit} == {A}


@given(views())
def test_it_prepares_only_what_it_has_seen_open(view: View) -> None:
    step = decide(view)
    if isinstance(step, Write) and step.state is State.PREPARED:
        assert view.described is not None
        open_ids = {each for each, said in view.described.items() if said.state == "Ongoing"}
        assert {each.handle.transactional_id for each in step.transactions} <= open_ids | set(step.committed)


# Many tasks

MANY = 20_000


def many(name: str) -> tuple[PreparedTransaction, ...]:
    return tuple(prepared(f"{name}-{number}", number) for number in range(MANY))


def without_quadratic_work(view: View) -> Step:
    """Decides. With work for each pair of transactions this takes from 20 s to 10 minutes, otherwise 0.2 s."""
    costs_at_most(lambda: decide(view), megabytes=UNMEASURED, seconds=5)
    return decide(view)


@pytest.mark.slow
def test_the_end_of_a_batch_of_many_tasks_is_decided_without_comparing_each_with_each() -> None:
    own, lost = many("own"), tuple(each.handle for each in many("lost"))
    view = replace(read(record(State.COMPLETE, transactions=own), own), listed=(*(each.handle for each in own), *lost))
    assert without_quadratic_work(view) == Done(lost)


@pytest.mark.slow
def test_a_replay_of_many_tasks_is_decided_without_comparing_each_with_each() -> None:
    before, own = many("before"), many("own")
    ids = [each.handle.transactional_id for each in before]
    last = replace(record(State.REPLAY, transactions=before[:1]), transactions=before, rows=10 * MANY)
    view = looked(read(replace(last, committed=tuple(ids[::2]), aborted=tuple(ids[1::2])), own))
    step = without_quadratic_work(view)
    assert isinstance(step, Write)
    assert step.transactions == (*before[::2], *own[1::2])
    written = view.with_written(replace(last, state=State.PREPARED, transactions=step.transactions, committed=step.committed))
    assert without_quadratic_work(written) == Commit(tuple(each.handle for each in own[1::2]))
