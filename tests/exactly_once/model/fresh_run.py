"""From every state those that begin afresh, undisturbed, come to the end: with each row visible, and nothing open."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spark_kafka_sink.exactly_once import recovery_rules
from spark_kafka_sink.exactly_once.commit_record import State
from tests.exactly_once.model import running, truth
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Configuration, Driver, Person, recover
from tests.exactly_once.model.coordinator import Slot
from tests.exactly_once.model.program import OVER, Program, Turn
from tests.exactly_once.model.values import NONE, last_record
from tests.exactly_once.model.world import BrokenError, Budget, World

# What a person does about a job that is gone: commit what can be, and then abort what is open.
_FOR_A_JOB: Final = (Person(recover), Person(recovery_rules.abort, is_abort=True))


class FreshRun:
    """Everybody else is gone for good. A query runs once more and has one batch more, whose commit ends what was left behind."""

    def __init__(self, configuration: Configuration) -> None:
        driver = configuration.drivers[0]
        self._rows = configuration.row_count
        self._slots = configuration.slots
        self._is_job = driver.is_job
        self._is_checked = not driver.ignores_failures
        self._batches = (*driver.batches, (self._rows,))
        runner = replace(driver, batches=self._batches, runs=2)
        programs: tuple[Driver | Person, ...] = _FOR_A_JOB if driver.is_job else (runner,)
        self._configuration = replace(
            configuration,
            programs=programs,
            budget=Budget(),
            has_markers=False,
            is_fresh_run=not configuration.has_copies,
            first_slot=configuration.slots * len(configuration.drivers),
        )
        self._checked: set[World] = set()

    def check(self, world: World) -> None:
        if not self._is_checked:
            return
        stripped = world._replace(
            slots=worlds.with_markers(world).slots + (Slot(),) * self._slots,
            log=world.log._replace(claim=NONE, on_its_way=NONE, before=NONE),
            visible=(*world.visible, 0),
            late=(),
            budget=Budget(),
            programs=(Program(),) * len(self._configuration.programs),
            is_told=worlds.is_told(world),
        )
        if stripped not in self._checked:
            self._checked.add(stripped)
            self._run(stripped)

    def _run(self, world: World) -> None:
        """One after the other."""
        try:
            for number in range(len(world.programs)):
                world = self._after(world, number)
        except BrokenError as error:
            raise BrokenError(f"a fresh run: {error}") from error
        if self._is_job:
            self._check_end_of_job(world)
        elif world.checkpoint[0] == len(self._batches):
            _check_nothing_is_open(world)

    def _after(self, world: World, number: int) -> World:
        """The first that a program may do is what it does where nothing fails."""
        while (turn := Turn(self._configuration, world, number, world.programs[number])).program.phase != OVER:
            following = next(running.steps(turn), None)
            if following is None:
                raise BrokenError("does not come to an end")
            world = following[1]
        return world

    def _check_end_of_job(self, world: World) -> None:
        last = last_record(world.log.last)
        if last is not None and last.state is State.PREPARED:
            return  # it was refused, with a reason that was checked: a person has to resolve it
        _check_nothing_is_open(world)
        gone = set[int]() if last is None else truth.went_with_topic(world, last)
        if len({world.visible[row] for row in range(self._rows) if row not in gone}) > 1:
            raise BrokenError("a job that nobody has to resolve is visible in part")


def _check_nothing_is_open(world: World) -> None:
    if worlds.listed(world):
        raise BrokenError("after a commit, or an abort, that nothing disturbed a transaction is left open")
