"""From every state a run that begins afresh, undisturbed, comes to the end: with each row visible, and nothing open."""

from __future__ import annotations

from dataclasses import replace

from tests.exactly_once.model import running
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Configuration
from tests.exactly_once.model.coordinator import Slot
from tests.exactly_once.model.program import OVER, Program, Turn
from tests.exactly_once.model.values import NONE
from tests.exactly_once.model.world import BrokenError, Budget, World


class FreshRun:
    """Everybody else is gone for good. The run has one batch more, whose commit ends what was left behind."""

    def __init__(self, configuration: Configuration) -> None:
        driver = configuration.drivers[0]
        self._rows = configuration.row_count
        self._checkpoints = [each.checkpoint for each in configuration.drivers]
        self._slots = configuration.slots
        self._is_checked = not driver.is_job and not driver.ignores_failures
        self._batches = (*driver.batches, (self._rows,))
        runner = replace(driver, batches=self._batches, runs=2)
        self._configuration = replace(
            configuration,
            programs=(runner,),
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
            programs=(Program(),),
        )
        if stripped not in self._checked:
            self._checked.add(stripped)
            self._run(stripped)

    def _run(self, world: World) -> None:
        """The first that a program may do is what it does where nothing fails."""
        try:
            while (turn := Turn(self._configuration, world, 0, world.programs[0])).program.phase != OVER:
                following = next(running.steps(turn), None)
                if following is None:
                    raise BrokenError("does not come to an end")
                world = following[1]
        except BrokenError as error:
            raise BrokenError(f"a fresh run: {error}") from error
        if world.checkpoint[0] == len(self._batches):
            self._check_end(world)

    def _check_end(self, world: World) -> None:
        if worlds.listed(world):
            raise BrokenError("after a commit that nothing disturbed a transaction is left open")
