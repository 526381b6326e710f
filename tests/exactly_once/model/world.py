"""All but programs: transactional ids, the commit log, visible rows, Spark's checkpoint, requests on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.exactly_once.commit_record import State
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.exactly_once.model import coordinator
from tests.exactly_once.model.coordinator import COMMITTED, ONGOING, PENDING, Slot
from tests.exactly_once.model.values import NONE, RECORDS, TRANSACTIONS, VIEWS, last_record, numbers_of

if TYPE_CHECKING:
    from tests.exactly_once.model.program import Program

Label = tuple[object, ...]


class BrokenError(Exception):
    """What must never be."""


class Budget(NamedTuple):
    """How often each failure may still happen."""

    crashes: int = 0  # of a program, between two steps
    lost: int = 0  # answers: the request is on its way, and arrives at any later time or never
    timeouts: int = 0  # of transactions
    dead_attempts: int = 0  # of tasks, which leave a transaction open
    errors: int = 0  # that end an attempt to commit, and with it the commit
    rejected: int = 0  # rows that a broker rejects in one attempt, and on.error=drop leaves out
    forgotten: int = 0  # transactional ids that were idle for a week, and expire
    replaced: int = 0  # topics that are deleted, and created again


class Log(NamedTuple):
    """The commit log of one query. claim: the program whose InitProducerId was the last. on_its_way: a record whose EndTxn was
    sent; the next claim aborts it. `doomed`, and `doomed_on_its_way`: it was prepared with a transaction that was not open any
    more, or too old, when its writer claimed the log; then a stop because of it has no true reason.

    A record is one value here, though it may be written in several chunks: they are in one transaction. Of a writer that dies
    between two of them the next claim aborts all, before anybody reads, and no reader of committed records sees one.
    """

    claim: int = NONE
    last: int = NONE
    on_its_way: int = NONE
    doomed: bool = False
    doomed_on_its_way: bool = False
    before: int = NONE  # the last but one: what who does not wait for the LSO may take for the last


class World(NamedTuple):
    """visible: how often each row is. late: (transaction, whether to commit, the sender's batch) of EndTxns on their way.
    failed: a batch job was reported as failed. programs: their states. topic: how often it was replaced. is_told: see the
    function of that name."""

    slots: tuple[Slot, ...]
    log: Log
    visible: tuple[int, ...]
    late: tuple[tuple[int, bool, int], ...]
    checkpoint: tuple[int, ...]
    failed: bool
    budget: Budget
    programs: tuple[Program, ...]
    topic: int = 0
    is_told: bool = False

    def with_slot(self, number: int, slot: Slot) -> World:
        slots = self.slots
        return self._replace(slots=(*slots[:number], slot, *slots[number + 1 :]))

    def with_program(self, number: int, program: Program) -> World:
        programs = self.programs
        return self._replace(programs=(*programs[:number], program, *programs[number + 1 :]))

    def spend(self, what: str) -> World:
        return self._replace(budget=self.budget._replace(**{what: getattr(self.budget, what) - 1}))


def is_told(world: World) -> bool:
    """Whether somebody was told of rows that went with their topic, or a program has noted that it tells, and is to raise the
    error."""
    views = (VIEWS[each.view] for each in world.programs if each.view != NONE)
    last = last_record(world.log.last)
    is_noted = last is not None and last.state is State.COMPLETE and not last.gone
    return world.is_told or (is_noted and any(each.gone for each in views))


def slot_of(world: World, transaction: int) -> Slot:
    return world.slots[TRANSACTIONS[transaction].slot]


def is_open(world: World, transaction: int) -> bool:
    """With all of its rows, and by the coordinator's word: at the same epoch."""
    slot = slot_of(world, transaction)
    if slot.state != ONGOING or slot.epoch != TRANSACTIONS[transaction].handle.epoch:
        return False
    return slot.transaction == transaction or set(TRANSACTIONS[transaction].rows) <= set(TRANSACTIONS[slot.transaction].rows)


def end_txn(
    world: World, transaction: int, is_commit: bool, batch: int, has_markers: bool, other_version: bool = False
) -> tuple[ErrorCode, World]:
    """EndTxn for a transaction, by a sender that is at `batch`. has_markers: they are written at another time."""
    target = TRANSACTIONS[transaction]
    before = world.slots[target.slot]
    version = target.handle.transaction_version
    version = 3 - version if other_version else version
    answer, after = coordinator.end_txn(before, target.handle.epoch, is_commit, version)
    if after == before:
        return answer, world
    if before.state == ONGOING:
        check_target(transaction, before.transaction, batch)
    if is_commit:
        world = with_visible(world, before.transaction)
    if not has_markers:
        after = coordinator.completed(after)
    return answer, world.with_slot(target.slot, after)


def check_target(meant: int, hit: int, batch: int) -> None:
    if TRANSACTIONS[hit].attempt != TRANSACTIONS[meant].attempt:
        raise BrokenError("an EndTxn ended another transaction than the one it was sent for")
    if TRANSACTIONS[hit].batch > batch:
        raise BrokenError("the transaction of a later batch was ended")


def with_visible(world: World, transaction: int) -> World:
    if TRANSACTIONS[transaction].topic != world.topic:
        return world  # its rows went with the topic
    visible = list(world.visible)
    for row in TRANSACTIONS[transaction].rows:
        visible[row] += 1
        if visible[row] > 1:
            raise BrokenError(f"row {row} is visible twice")
    if world.failed:
        raise BrokenError("rows of a failed job are visible")
    return world._replace(visible=tuple(visible))


def with_record(world: World, record: int, doomed: bool) -> World:
    """The log ends with it."""
    check_promise(world, record)
    check_proof(world, record)
    return world._replace(log=world.log._replace(last=record, on_its_way=NONE, doomed=doomed))


def check_promise(world: World, record: int) -> None:
    """Where it says that rows will be visible, or are to be written again, no record of a later batch takes its place before."""
    last = last_record(world.log.last)
    if last is None or last.state not in (State.PREPARED, State.REPLAY) or RECORDS[record].batch == last.batch:
        return
    rows = (row for each in numbers_of(last.handles) for row in TRANSACTIONS[each].rows)
    if not all(world.visible[row] for row in rows):
        raise BrokenError("a batch whose rows the log has promised is left behind")


def check_proof(world: World, record: int) -> None:
    """Unknown is never replayed."""
    new = RECORDS[record]
    if new.state is State.ABORTED:
        written_again = {each.transactional_id for each in new.handles} - set(new.aborted)
    elif new.state is State.REPLAY:
        written_again = set(new.aborted)
    else:
        return
    of_tasks = (each.handle for each in new.transactions if each.spark_partition >= 0)  # the others are a person's, to be aborted
    for each in numbers_of(tuple(each for each in of_tasks if each.transactional_id in written_again)):
        slot = slot_of(world, each)
        if slot.transaction == each and (slot.state in COMMITTED or slot.state == ONGOING):
            raise BrokenError("a record says of a transaction that it was aborted, and it was not")


def listed(world: World) -> tuple[int, ...]:
    """What ListTransactions, and DescribeTransactions of that, find."""
    return tuple(slot.transaction for slot in world.slots if slot.state == ONGOING)


def with_markers(world: World) -> World:
    """All that is decided has reached the partitions."""
    slots = tuple(coordinator.completed(each) if each.state in PENDING else each for each in world.slots)
    return world._replace(slots=slots)
