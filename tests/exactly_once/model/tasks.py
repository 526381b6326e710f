"""The tasks of a batch, one after the other: each writes its rows in a transaction, at once, or slowly.

Between the rows of a slow task everything else may happen, so that somebody aborts its transaction and it does not know. What it
writes then, to which partition, and what leaders and the coordinator say to that, decides whether that is safe:

- It has written to the partition before, so it adds nothing to the transaction. A leader that has seen a later epoch refuses. One
  that has not asks the coordinator whether the partition is in the transaction (KIP-890; Kafka 3.6 and later do, unless
  transaction.partition.verification.enable is false). Without that it takes the row, behind the marker of the abort: no other
  will follow, and the last stable offset stays where it is for ever.
- It has not. With transactions of version 1 the epoch is still the same, and AddPartitionsToTxn begins the transaction again:
  without the rows from before. Whoever commits that loses those.
"""

from __future__ import annotations

from tests.exactly_once.model import coordinator, values
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Rows
from tests.exactly_once.model.coordinator import ONGOING, PENDING, Slot
from tests.exactly_once.model.ending import to_abort
from tests.exactly_once.model.program import COMMITS, WRITES, Next, Program, Turn
from tests.exactly_once.model.values import NONE, TRANSACTIONS
from tests.exactly_once.model.world import BrokenError, World


def first_task(turn: Turn, program: Program) -> Program:
    return next_task(turn, program._replace(phase=WRITES, partition=0, own=()))


def next_task(turn: Turn, program: Program) -> Program:
    """The next that has rows. After the last the driver commits what they told of."""
    shares = turn.partitions(program)
    partition = program.partition
    while partition < len(shares) and not shares[partition]:
        partition += 1
    if partition < len(shares):
        return program._replace(partition=partition)
    view = values.begun(program.batch, program.own, turn.driver.start, shares)
    return program._replace(phase=COMMITS, partition=0, view=view)


def writes(turn: Turn) -> Next:
    if turn.program.half != NONE:
        yield from _goes_on(turn)
        return
    number = _free_slot(turn)
    slot = turn.world.slots[number]
    if slot.state in PENDING:
        return  # InitProducerId waits for the markers
    rows = turn.partitions(turn.program)[turn.program.partition]
    if turn.driver.is_slow and len(rows) > 1:
        world, written = _write(turn, number, slot, rows[:1])
        yield turn.does("task begins to write", written), turn.becomes(turn.program._replace(half=written), world)
        return
    world, written = _write(turn, number, slot, rows)
    yield turn.does("task writes", written), turn.becomes(with_task_done(turn, written), world)
    if turn.world.budget.rejected:
        yield from _writes_but_one(turn, number, slot, rows)
    if turn.world.budget.dead_attempts:
        yield turn.does("task writes and dies", written), world.spend("dead_attempts")


def _writes_but_one(turn: Turn, number: int, slot: Slot, rows: Rows) -> Next:
    """A broker rejects a row, and the task drops it. Without any other row it has no transaction."""
    for rejected in rows:
        stored = tuple(each for each in rows if each != rejected)
        if not stored:
            yield turn.does("task's row is rejected"), turn.becomes(with_task_done(turn), turn.world.spend("rejected"))
            continue
        world, written = _write(turn, number, slot, stored, rows)
        yield (
            turn.does("task writes", written, "and a row is rejected"),
            turn.becomes(with_task_done(turn, written), world.spend("rejected")),
        )


def _write(turn: Turn, number: int, slot: Slot, rows: Rows, passed: Rows | None = None) -> tuple[World, int]:
    version, program = turn.configuration.version, turn.program
    if not (turn.breaks("InitProducerId before a slot is used again") and slot.transaction != NONE):
        slot = coordinator.initialized(slot, version)
    written = values.transaction(
        number, slot.epoch, program.batch, program.partition, rows, version, rows, passed, turn.world.topic
    )
    return turn.world.with_slot(number, coordinator.produced(slot, written)), written


def _free_slot(turn: Turn) -> int:
    """Of the driver's Python workers: the first that no attempt at this batch has used."""
    if turn.breaks("an id of each attempt's own"):
        return turn.program.partition
    first = turn.configuration.first_slot + turn.number * turn.configuration.slots
    for number in range(first, first + turn.configuration.slots):
        last = turn.world.slots[number].transaction
        if last == NONE or TRANSACTIONS[last].batch < turn.program.batch:
            return number
    raise AssertionError("the configuration has too few slots")


def with_task_done(turn: Turn, *written: int) -> Program:
    own = (*turn.program.own, *written)
    return next_task(turn, turn.program._replace(own=own, half=NONE, partition=turn.program.partition + 1))


# Slow tasks


def _goes_on(turn: Turn) -> Next:
    """The rest of a slow task's rows, to the partition of the first one, or to others."""
    half = TRANSACTIONS[turn.program.half]
    slot = turn.world.slots[half.slot]
    first, rest = half.rows, turn.partitions(turn.program)[turn.program.partition][1:]
    for in_same_partition in (True, False):
        whole = _transaction(turn, (*first, *rest), first if in_same_partition else (*first, *rest))
        where = "the same partition" if in_same_partition else "another partition"
        if slot.state == ONGOING and slot.transaction == turn.program.half:
            after: World | None = turn.world.with_slot(half.slot, slot._replace(transaction=whole))
        elif slot.state in PENDING:
            after = turn.world if in_same_partition else None  # its marker is still to come; AddPartitionsToTxn waits for it
        else:
            after = _after_its_end(turn, slot, rest, in_same_partition)
        if after is not None:
            yield turn.does("task goes on in", where, whole), turn.becomes(with_task_done(turn, whole), after)
        elif slot.state not in PENDING:
            yield turn.does("task is refused in", where), _failed(turn)


def _after_its_end(turn: Turn, slot: Slot, rest: Rows, in_same_partition: bool) -> World | None:
    """Somebody else has ended the transaction. None: what is written is refused."""
    half = TRANSACTIONS[turn.program.half]
    is_fenced = slot.state == coordinator.DEAD or slot.epoch != half.handle.epoch
    if is_fenced:
        return None
    if not in_same_partition:
        return turn.world.with_slot(half.slot, coordinator.produced(slot, _transaction(turn, rest, rest)))
    if turn.breaks("leaders verify that a partition is in the transaction"):
        raise BrokenError("a row behind the marker of its transaction's abort: the last stable offset stays there for ever")
    return None


def _transaction(turn: Turn, rows: Rows, in_partitions_of: Rows) -> int:
    half, program = TRANSACTIONS[turn.program.half], turn.program
    version = turn.configuration.version
    where = program.batch, program.partition
    return values.transaction(half.slot, half.handle.epoch, *where, rows, version, in_partitions_of, topic=half.topic)


def _failed(turn: Turn) -> World:
    """A task that fails aborts its own transaction, and the batch fails with it."""
    world = worlds.end_txn(turn.world, turn.program.half, False, turn.program.batch, turn.configuration.has_markers)[1]
    if turn.driver.is_job:
        return turn.becomes(to_abort(turn.program._replace(half=NONE)), world)
    return turn.becomes(Program(run=turn.program.run), world)
