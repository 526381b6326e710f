"""The life of a program: it begins, its tasks write (tasks.py), it commits, it crashes and begins again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_kafka_sink.exactly_once.recovery_rules import batch_to_abort
from tests.exactly_once.model import values
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.committing import commits
from tests.exactly_once.model.configuration import Driver, Person
from tests.exactly_once.model.ending import ends, to_abort
from tests.exactly_once.model.program import COMMITS, DONE, ENDS, OFF, OVER, WRITES, Next, Program, Turn
from tests.exactly_once.model.tasks import first_task, writes
from tests.exactly_once.model.values import NONE
from tests.exactly_once.model.world import World


def steps(turn: Turn) -> Next:
    """All that the program may do next, each with the world after it."""
    program, who = turn.program, turn.configuration.programs[turn.number]
    if program.phase == OVER:
        return
    if program.phase == OFF:
        yield from _begins(turn) if isinstance(who, Driver) else _command_begins(turn, who)
        return
    yield from PHASES[program.phase](turn)
    if turn.world.budget.crashes and isinstance(who, Driver):
        yield turn.does("crashes"), _crashed(turn)


def _crashed(turn: Turn) -> World:
    world = turn.world._replace(is_told=worlds.is_told(turn.world))
    if world.log.claim == turn.number:
        world = world._replace(log=world.log._replace(claim=NONE))
    return turn.becomes(Program(run=turn.program.run), world.spend("crashes"))


def _begins(turn: Turn) -> Next:
    driver, world, run = turn.driver, turn.world, turn.program.run
    batch = world.checkpoint[driver.checkpoint]
    if run >= driver.runs or batch >= len(driver.batches):
        return
    if driver.begins_after is not None and world.programs[driver.begins_after].phase != OVER:
        return
    if turn.breaks("no sweep at the start of a run"):
        for each in worlds.listed(world):
            world = worlds.end_txn(world, each, False, batch, has_markers=False)[1]
    yield turn.does("begins"), turn.becomes(first_task(turn, Program(run=run + 1, batch=batch)), world)


def _command_begins(turn: Turn, who: Person) -> Next:
    """It looks at the log, without a claim, to know which batch it is about."""
    if turn.program.run:
        return
    last = values.last_record(turn.world.log.last)
    batch = batch_to_abort(last) if who.is_abort else 0 if last is None else last.batch
    program = Program(phase=COMMITS, run=1, batch=batch, view=values.begun(batch, ()))
    yield turn.does("begins"), turn.becomes(program)


# The end of a batch


def _done(turn: Turn) -> Next:
    """Spark writes to its checkpoint that the batch is committed; a job is over, or is to be aborted all the same, as who has
    committed it died before he could say so."""
    driver, world, batch = turn.driver, turn.world, turn.program.batch
    if driver.is_job:
        if turn.breaks("a job's record stays when it is complete") and world.log.claim == turn.number:
            world = world._replace(log=world.log._replace(last=NONE))
        yield turn.does("is over"), turn.becomes(Program(phase=OVER), world)
        yield turn.does("is over, and is aborted"), turn.becomes(to_abort(turn.program), world)
        return
    checkpoint = list(world.checkpoint)
    checkpoint[driver.checkpoint] = max(checkpoint[driver.checkpoint], batch + 1)
    program = Program(phase=OVER)
    if batch + 1 < len(driver.batches):
        program = first_task(turn, Program(run=turn.program.run, batch=batch + 1))
    yield turn.does("checkpoint"), turn.becomes(program, world._replace(checkpoint=tuple(checkpoint)))


PHASES: Final[dict[str, Callable[[Turn], Next]]] = {WRITES: writes, COMMITS: commits, ENDS: ends, DONE: _done}
