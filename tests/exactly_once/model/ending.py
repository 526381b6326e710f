"""What follows a decision that ends a commit: leftovers are aborted, and the program goes on, fails, or is over."""

from __future__ import annotations

from typing import Any

from tests.exactly_once.model import coordinator, truth, values
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Person
from tests.exactly_once.model.program import COMMITS, DONE, OVER, Next, Program, Turn
from tests.exactly_once.model.values import NONE, TRANSACTIONS, VIEWS
from tests.exactly_once.model.world import World


def ends(turn: Turn) -> Next:
    """EndTxn(abort) for each that is left over; no answer matters."""
    program, world = turn.program, turn.world
    assert program.todo is not None
    if not program.todo:
        yield _ended(turn)
        if program.is_aborting and world.log.claim == turn.number and not _is_one_open(turn):
            yield turn.does("has aborted, and removes the record"), truth.failed(turn, _without_record(turn))
        return
    first, rest = program.todo[0], program._replace(todo=program.todo[1:])
    if turn.breaks("orphans are ended by their own epoch") and first not in program.own:
        yield turn.does("InitProducerId", first), turn.becomes(rest, _initialized(turn, first))
        return
    answer, after = worlds.end_txn(world, first, False, turn.may_end, turn.configuration.has_markers)
    yield turn.does("EndTxn(abort)", first, answer.name), turn.becomes(rest, after)
    if world.budget.lost:
        yield turn.does("EndTxn(abort), late", first), turn.becomes(rest, with_late(turn, first, False))


def _is_one_open(turn: Turn) -> bool:
    last = VIEWS[turn.program.view].last
    return last is not None and any(worlds.is_open(turn.world, each) for each in values.numbers_of(last.handles))


def _without_record(turn: Turn) -> World:
    return turn.becomes(Program(phase=OVER), turn.world._replace(log=turn.world.log._replace(last=NONE)))


def _initialized(turn: Turn, transaction: int) -> World:
    number = TRANSACTIONS[transaction].slot
    slot = turn.world.slots[number]
    if slot.state in coordinator.PENDING:
        return turn.world
    if slot.state == coordinator.ONGOING:
        worlds.check_target(transaction, slot.transaction, turn.may_end)
    return turn.world.with_slot(number, coordinator.initialized(slot, turn.configuration.version))


def _ended(turn: Turn) -> tuple[Any, World]:
    program = turn.program
    who = turn.configuration.programs[turn.number]
    over = Program(phase=OVER)
    if isinstance(who, Person) or program.is_aborting:
        return turn.does("has aborted"), truth.failed(turn, turn.becomes(over))
    if program.after == DONE:
        return turn.does("has committed"), turn.becomes(program._replace(phase=DONE, todo=None, view=NONE))
    if who.is_job:
        return turn.does("commit() fails"), turn.becomes(to_abort(program))
    if who.ignores_failures:
        return turn.does("goes on after a failure"), turn.becomes(program._replace(phase=DONE, todo=None, view=NONE))
    return turn.does("fails"), turn.becomes(over if program.after == OVER else Program(run=program.run))


def to_abort(program: Program) -> Program:
    """A job that Spark gives up."""
    view = values.begun(program.batch, program.own)
    return Program(COMMITS, program.run, own=program.own, view=view, is_aborting=True)


def with_late(turn: Turn, transaction: int, is_commit: bool) -> World:
    late = tuple(sorted((*turn.world.late, (transaction, is_commit, turn.may_end))))
    return turn.world._replace(late=late).spend("lost")
