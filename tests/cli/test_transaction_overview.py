"""What is said of a query by its record, its transactions and what coordinators know of them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.cli.transactions.list_transactions import QueryLine, TransactionStatus, overview, query_of
from spark_kafka_sink.cli.transactions.result import age, partitions_text, text_table
from spark_kafka_sink.exactly_once.commit_log import LoggedRecord
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.micro_batch import foreign_prefix
from spark_kafka_sink.exactly_once.proof import TransactionDescription
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

NOW_MS = 1_000_000
ONGOING, ABORTED, COMMITTED, COMMITTING = "Ongoing", "CompleteAbort", "CompleteCommit", "PrepareCommit"
MARKERS = "its rows are visible when the brokers have written the markers; if they do not, see docs/support.md"


def handle(name: str, rows: int = 1, query_id: str = "q") -> TransactionHandle:
    return TransactionHandle(f"app.{query_id}.{name}.0", 7, 3, 2, rows, (("events", "0-1"),))


def described(handle: TransactionHandle, state: str = ONGOING, *, later: int = 0) -> TransactionDescription:
    return TransactionDescription(state, handle.producer_id, handle.epoch + later, 60_000, NOW_MS - 10_000, handle.partitions)


def line(
    state: State | None,
    states: dict[TransactionHandle, str],
    *,
    orphans: tuple[TransactionHandle, ...] = (),
    aborted: tuple[TransactionHandle, ...] = (),
    query_id: str = "q",
) -> QueryLine:
    """states: of the record's transactions, as coordinators tell."""
    known = {each.transactional_id: described(each, said, later=0 if said == ONGOING else 1) for each, said in states.items()}
    known |= {each.transactional_id: described(each) for each in orphans}
    listed = (*(each for each, said in states.items() if said == ONGOING), *orphans)
    records = {}
    if state is not None:
        transactions = tuple(PreparedTransaction(each, -1, 0) for each in states)
        gone = tuple(each.transactional_id for each in aborted)
        record = CommitRecord(query_id, 4, state, "r", sum(each.records for each in states), transactions, (), gone)
        records = {query_id: LoggedRecord(record, 0, NOW_MS - 60_000)}
    (made,) = overview("app", records, {query_id: listed} if listed else {}, known, NOW_MS)
    return made


A, B, C = handle("a", 10), handle("b", 20), handle("c")
J, K = handle("a", 10, "job-1"), handle("b", 20, "job-1")


@pytest.mark.parametrize(
    ("made", "to_do"),
    [
        (line(State.COMPLETE, {A: COMMITTED}), ""),
        (line(State.ABORTED, {A: ABORTED}), "restart the query to write the batch again"),
        (line(State.CLOSED, {A: ABORTED}), "restart the query to write the batch again"),
        (line(State.CLOSED, {J: ABORTED}, query_id="job-1"), "run the job again"),
        (line(State.CLOSED, {A: ONGOING}, aborted=(A,)), "abort --query q"),
        (line(State.COMPLETE, {A: COMMITTED, B: ONGOING}, aborted=(B,)), "abort --query q"),
        (line(State.COMPLETE, {A: COMMITTED, B: ABORTED}, aborted=(B,)), ""),
        (line(State.REPLAY, {A: COMMITTED, B: ABORTED}, aborted=(B,)), "restart the query to write the lost rows again"),
        (line(State.PREPARED, {A: ONGOING, B: COMMITTED}), "restart the query, or: recover --query q"),
        (line(State.PREPARED, {J: ONGOING}, query_id="job-1"), "recover --query job-1"),
        (line(State.PREPARED, {A: COMMITTING, B: COMMITTED}), MARKERS),
        (line(State.PREPARED, {A: COMMITTING, B: ONGOING}), "restart the query, or: recover --query q"),
        (line(State.PREPARED, {A: ABORTED, B: ABORTED}), "restart the query to write the batch again"),
        (line(State.PREPARED, {J: ABORTED}, query_id="job-1"), "run the job again"),
        (
            line(State.PREPARED, {A: ABORTED, B: ONGOING}),
            "recover --query q before the open ones time out, then: resolve --query q --batch 4 --replay (or --accept-loss)",
        ),
        (line(State.PREPARED, {A: ABORTED, B: COMMITTED}), "resolve --query q --batch 4 --replay (or --accept-loss)"),
        (line(State.PREPARED, {A: "Empty"}), "resolve --query q --batch 4 --replay (or --accept-loss)"),
        (line(State.PREPARED, {J: ABORTED, K: COMMITTED}, query_id="job-1"), "resolve --query job-1 --batch 4 --accept-loss"),
        (line(None, {}, orphans=(C,)), "if it no longer runs: abort --query q; if it runs, its next commit ends them"),
        (
            line(State.COMPLETE, {A: COMMITTED}, orphans=(C,)),
            "if it no longer runs: abort --query q; if it runs, its next commit ends them",
        ),
    ],
)
def test_for_each_state_there_is_one_thing_to_do(made: QueryLine, to_do: str) -> None:
    assert made.to_do == to_do


def test_an_orphan_beside_a_prepared_batch_changes_nothing_of_what_is_to_be_done_with_that() -> None:
    made = line(State.PREPARED, {A: ONGOING}, orphans=(C,))
    assert made.to_do == "restart the query, or: recover --query q"
    assert [(each.handle, each.status) for each in made.transactions] == [
        (A, TransactionStatus.PREPARED),
        (C, TransactionStatus.ORPHAN),
    ]


def test_an_open_transaction_has_an_age_and_a_time_to_live_and_others_have_not() -> None:
    made = line(State.PREPARED, {A: ONGOING, B: ABORTED})
    said = [(each.status, each.age_ms, each.left_ms) for each in made.transactions]
    assert said == [(TransactionStatus.PREPARED, 10_000, 50_000), (TransactionStatus.ABORTED, None, None)]


def test_of_another_prefix_no_more_is_said_than_that() -> None:
    other = TransactionHandle("my.app.q.0a.0", 7, 3, 2, 1)
    made = line(State.PREPARED, {other: ONGOING})
    assert (made.to_do, made.transactions) == ("list --prefix my.app", ())
    assert line(State.COMPLETE, {other: COMMITTED}).to_do == ""
    assert foreign_prefix("my.app", CommitRecord("q", 1, State.PREPARED, "r", 1, (PreparedTransaction(other, 0, 0),))) is None


def test_a_transaction_of_the_same_id_and_another_epoch_is_another_one() -> None:
    record = CommitRecord("q", 4, State.PREPARED, "r", 10, (PreparedTransaction(A, -1, 0),))
    next_one = TransactionHandle(A.transactional_id, A.producer_id, A.epoch + 2, 2, 0)
    known = {A.transactional_id: described(next_one)}
    (made,) = overview("app", {"q": LoggedRecord(record, 0, 0)}, {"q": (next_one,)}, known, NOW_MS)
    assert [each.status for each in made.transactions] == [TransactionStatus.UNKNOWN, TransactionStatus.ORPHAN]


def test_what_there_is_to_do_comes_first() -> None:
    records = {
        name: LoggedRecord(CommitRecord(name, 1, state, "r", 0), 0, 0)
        for name, state in (("a", State.COMPLETE), ("b", State.ABORTED), ("c", State.COMPLETE))
    }
    assert [each.query_id for each in overview("app", records, {}, {}, NOW_MS)] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("transactional_id", "query_id"),
    [
        ("my.app.q-1.0a.2", "q-1"),
        ("my.app.q-1.log", None),  # of the commit log's writer
        ("my.app.q-1", None),
        ("my.app.q-1.xyz.2", None),
        ("my.apps.q-1.0a.2", None),
        ("my.q-1.0a.2", None),
    ],
)
def test_a_transactional_id_says_whose_it_is(transactional_id: str, query_id: str | None) -> None:
    assert query_of("my.app", transactional_id) == query_id


def test_ages_are_in_units_that_people_read() -> None:
    assert [age(s * 1000) for s in (-5, 0, 119, 120, 7199, 7200, 200_000)] == [
        "0 s",
        "0 s",
        "119 s",
        "2 min",
        "119 min",
        "2 h",
        "2 days",
    ]


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert text_table(("A", "B"), [("long", "x"), ("", "y")]) == "A     B\nlong  x\n      y"
    assert partitions_text((("events", "0-3,7"), ("other", "1"))) == "events 0-3,7 other 1"
    assert partitions_text(()) == "-"
