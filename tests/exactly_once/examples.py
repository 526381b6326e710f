"""Transactions, records and views for tests of the rules, and the table of what a commit does first."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, TaskRows
from spark_kafka_sink.exactly_once.commit_rules import Commit, Done, Look, Step, Stop, View, decide
from spark_kafka_sink.exactly_once.proof import TransactionDescription
from spark_kafka_sink.exactly_once.recovery_rules import Refused
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

TIMEOUT_MS: Final = 900_000
BEGUN_MS: Final = 1_700_000_000_000
BATCH: Final = 7


def handle(name: str, epoch: int = 0, records: int = 10) -> TransactionHandle:
    return TransactionHandle(name, 4711, epoch, 2, records)


def prepared(name: str, partition: int = 0, *, epoch: int = 0, records: int = 10, checksum: int = 1) -> PreparedTransaction:
    return PreparedTransaction(handle(name, epoch, records), partition, checksum)


OWN: Final = (prepared("own-0", 0, checksum=100), prepared("own-1", 1, checksum=101))
BEFORE: Final = (prepared("before-0", 0, checksum=100), prepared("before-1", 1, checksum=101))
"""The same rows in the same partitions, as another run wrote them."""


def record(state: State, batch: int = BATCH, transactions: tuple[PreparedTransaction, ...] = BEFORE) -> CommitRecord:
    rows = sum(each.handle.records for each in transactions)
    made = CommitRecord("query", batch, state, f"{state}-{batch}", rows, transactions)
    if state is State.REPLAY:
        ids = [each.handle.transactional_id for each in transactions]
        return replace(made, committed=tuple(ids[:1]), aborted=tuple(ids[1:]))
    return made


def read(
    last: CommitRecord | None,
    own: tuple[PreparedTransaction, ...] = OWN,
    batch: int = BATCH,
    start: int | None = None,
    tasks: tuple[TaskRows, ...] = (),
) -> View:
    return View(batch, own, start, tasks=tasks).with_read(last)


def ongoing(each: TransactionHandle, start_time_ms: int = BEGUN_MS) -> TransactionDescription:
    return TransactionDescription("Ongoing", each.producer_id, each.epoch, TIMEOUT_MS, start_time_ms)


def looked(view: View, listed: tuple[TransactionHandle, ...] = (), age_ms: int = 1_000) -> View:
    """All of its own are open."""
    described = {each.transactional_id: ongoing(each) for each in view.own_handles}
    return view.with_look(described, (*view.own_handles, *listed), BEGUN_MS + age_ms)


# The table of spark_kafka_sink/exactly_once/README.md

COLUMNS: Final = {"an earlier batch": -1, "the same batch": 0, "the next": 1, "a later one": 2}


def first_step(state: State | None, later: int, *, is_start: bool = False) -> str:
    """What a commit of the batch that is `later` than the last record does, once it has read that."""
    last = None if state is None else record(state)
    batch = (0 if last is None else BATCH) + later
    return words(decide(read(last, batch=batch, start=batch if is_start else None)))


def words(step: Step | Refused) -> str:
    match step:
        case Look():
            return "look, prepare"
        case Commit():
            return "commit what it lists"
        case Done():
            return "done"
        case Stop(reason):
            return f"stop: {reason.name}"
    return type(step).__name__


def table() -> str:
    """As Markdown."""
    rows = [["last record", *COLUMNS, "a later one, at `commit.log.start`"], ["---"] * (len(COLUMNS) + 2)]
    for state in State:
        cells = [first_step(state, later) for later in COLUMNS.values()]
        rows.append([state.value, *cells, first_step(state, 2, is_start=True)])
    rows.append(["none, batch 0", "", "look, prepare", "stop: NO_RECORD", "stop: NO_RECORD", first_step(None, 2, is_start=True)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
