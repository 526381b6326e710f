"""Transactions, records and what is known of them, as numbers: a state of the model is made of small tuples of numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple, TypeVar

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, TaskRows
from spark_kafka_sink.exactly_once.commit_rules import View, Write
from spark_kafka_sink.exactly_once.proof import Outcome, TransactionDescription
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from tests.exactly_once.model.coordinator import EPOCHS, NOTHING, PRODUCER_ID, Slot, state_name

TIMEOUT_MS: Final = 900_000
NOW_MS: Final = 2_000_000
BEGUN_MS: Final = {False: NOW_MS - 1_000, True: NOW_MS - TIMEOUT_MS + 1_000}
NONE: Final = -1

T = TypeVar("T")


class Transaction(NamedTuple):
    """slot: the number of its transactional id. rows: their numbers, so far: with more rows it is another value. topic: how often
    it had been replaced when the first were written."""

    slot: int
    batch: int
    rows: tuple[int, ...]
    prepared: PreparedTransaction
    topic: int

    @property
    def attempt(self) -> tuple[int, int, int, int]:
        """The task's attempt that writes it: to others it is one transaction, however many rows it has so far."""
        return self.slot, self.handle.epoch, self.batch, self.prepared.spark_partition

    @property
    def handle(self) -> TransactionHandle:
        return self.prepared.handle


TRANSACTIONS: Final[list[Transaction]] = []
RECORDS: Final[list[CommitRecord]] = []
VIEWS: Final[list[View]] = []
_NUMBERS: Final[dict[Hashable, int]] = {}
_ROWS: Final[dict[int, tuple[int, ...]]] = {}  # by checksum


def _number(values: list[T], key: Hashable, make: Callable[[int], T]) -> int:
    """What has the same key is the same value, and has the same number."""
    if key not in _NUMBERS:
        _NUMBERS[key] = len(values)
        values.append(make(len(values)))
    return _NUMBERS[key]


# Transactions


@cache
def transaction(
    slot: int,
    epoch: int,
    batch: int,
    spark_partition: int,
    rows: tuple[int, ...],
    version: int,
    in_partitions_of: tuple[int, ...],
    passed: tuple[int, ...] | None = None,
    topic: int = 0,
) -> int:
    """in_partitions_of: rows, each of which has a topic partition of its own. passed: the task's rows, if some were rejected."""
    where = partition_ranges(("topic", each) for each in in_partitions_of)
    task = passed_to(spark_partition, rows if passed is None else passed)
    label = (f"batch {batch}, partition {spark_partition}{'' if passed is None else f', of {passed}'} in {topic}", "0")
    producer_id = PRODUCER_ID + epoch // EPOCHS
    handle = TransactionHandle(f"slot-{slot}", producer_id, epoch, version, len(rows), (label, *where), topic_ids(topic))
    prepared = PreparedTransaction(handle, spark_partition, task.checksum)
    return _number(TRANSACTIONS, handle, lambda _: Transaction(slot, batch, rows, prepared, topic))


def topic_ids(topic: int) -> tuple[tuple[str, str], ...]:
    return (("topic", str(topic)),)


@cache
def numbers_of(handles: tuple[TransactionHandle, ...]) -> tuple[int, ...]:
    return tuple(_NUMBERS[each] for each in handles)


def handles_of(numbers: tuple[int, ...]) -> tuple[TransactionHandle, ...]:
    return tuple(TRANSACTIONS[each].handle for each in numbers)


def passed_to(spark_partition: int, rows: tuple[int, ...]) -> TaskRows:
    _ROWS[hash(rows)] = rows
    return TaskRows(spark_partition, len(rows), hash(rows))


def rows_passed(record: CommitRecord) -> set[tuple[int, tuple[int, ...]]]:
    """The rows of each task, by what the record says."""
    return {(each.spark_partition, _ROWS[each.checksum]) for each in record.passed if each.spark_partition >= 0}


# Records


@cache
def record(batch: int, write: Write) -> int:
    """Equal ones are one record: to write the same again changes nothing, and no other record can come between (see rules)."""
    new = CommitRecord(
        "query",
        batch,
        write.state,
        "",
        write.rows,
        write.transactions,
        write.committed,
        write.aborted,
        tasks=write.tasks,
        topic_ids=write.topic_ids,
    )
    return _number(RECORDS, new, lambda number: replace(new, record_id=str(number)))


def last_record(number: int) -> CommitRecord | None:
    return None if number == NONE else RECORDS[number]


# Views


def view(new: View) -> int:
    described = None if new.described is None else tuple(sorted((k, v) for k, v in new.described.items()))
    outcomes = None if new.outcomes is None else tuple(sorted(new.outcomes.items()))
    last = None if new.last is None else new.last.record_id
    key = (
        new.batch,
        new.own,
        new.tasks,
        new.start,
        new.read,
        last,
        described,
        new.listed,
        outcomes,
        new.reread,
        new.replaced,
        new.gone,
    )
    return _number(VIEWS, key, lambda _: new)


@cache
def begun(batch: int, own: tuple[int, ...], start: int | None = None, passed: tuple[tuple[int, ...], ...] = ()) -> int:
    """passed: the rows of each task."""
    tasks = tuple(passed_to(number, rows) for number, rows in enumerate(passed) if rows)
    return view(View(batch, tuple(TRANSACTIONS[each].prepared for each in own), start, tasks=tasks))


@cache
def begun_again(number: int) -> int:
    return view(VIEWS[number].begun())


@cache
def with_read(number: int, last: int) -> int:
    return view(VIEWS[number].with_read(last_record(last)))


def read_before(number: int, last: int) -> int:
    """What the log said when it was read before, or `last`, if it was not."""
    known = VIEWS[number]
    if not known.read:
        return last
    return NONE if known.last is None else int(known.last.record_id)


@cache
def with_look(
    number: int, described: tuple[tuple[int, Slot], ...], listed: tuple[int, ...], replaced: frozenset[str] = frozenset()
) -> int:
    said = {TRANSACTIONS[each].handle.transactional_id: description(slot) for each, slot in described}
    return view(VIEWS[number].with_look(said, handles_of(listed), NOW_MS, replaced))


@cache
def with_gone(number: int) -> int:
    return view(VIEWS[number].with_gone(frozenset({"topic"})))


@cache
def with_outcomes(number: int, outcomes: tuple[tuple[int, Outcome], ...]) -> int:
    found = {TRANSACTIONS[each].handle.transactional_id: how for each, how in outcomes}
    return view(VIEWS[number].with_outcomes(found))


@cache
def with_written(number: int, written: int) -> int:
    return view(VIEWS[number].with_written(RECORDS[written]))


@cache
def description(slot: Slot) -> TransactionDescription:
    producer_id = PRODUCER_ID + slot.epoch // EPOCHS
    partitions = TRANSACTIONS[slot.transaction].handle.partitions if slot.transaction != NOTHING else ()
    return TransactionDescription(state_name(slot), producer_id, slot.epoch, TIMEOUT_MS, BEGUN_MS[slot.is_old], partitions)


def forget() -> None:
    """All that was numbered, in this module and in those that remember numbers."""
    for name, module in list(sys.modules.items()):
        if name.startswith(__package__):
            for each in vars(module).values():
                if hasattr(each, "cache_clear"):
                    each.cache_clear()
    for values in (TRANSACTIONS, RECORDS, VIEWS, _NUMBERS, _ROWS):
        values.clear()
