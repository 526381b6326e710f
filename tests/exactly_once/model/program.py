"""The state of a program: a driver with its tasks, or the command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from spark_kafka_sink.exactly_once.commit_rules import Step
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.recovery_rules import Refused
from tests.exactly_once.model.configuration import Configuration, Decide, Driver, Person, Rows
from tests.exactly_once.model.coordinator import Slot
from tests.exactly_once.model.values import NONE, VIEWS
from tests.exactly_once.model.world import Label, World

OFF: Final = "off"
WRITES: Final = "writes"  # its tasks do, one after the other
COMMITS: Final = "commits"
ENDS: Final = "ends"  # what is left over
DONE: Final = "done"  # Spark is to write down that the batch is committed
OVER: Final = "over"

ANY_BATCH: Final = 1000

Next = Iterator[tuple[Label, World]]


class Program(NamedTuple):
    """run: how many were begun. partition: of the task that writes next. own: what the batch's tasks told of. view: what is known
    of its commit. is_claimed, described: half of Read, of Look. todo: whose EndTxn is still to be answered, got: what it proved.
    after: what follows when the leftovers are ended. is_doomed: when it claimed the log, one of its own was not open any more, or
    too old. is_visible: when it described its own, rows of them were visible. is_preparing: it has sent a record that prepares
    its own, in whichever attempt, or call, for the batch. is_aborting: a job's commit has failed. half: the transaction of a slow
    task that has rows to write still. is_gone: what it is to commit is in a topic that was replaced, so it is aborted;
    is_begun: but some of it was committed before."""

    phase: str = OFF
    run: int = 0
    batch: int = 0
    partition: int = 0
    own: tuple[int, ...] = ()
    view: int = NONE
    is_claimed: bool = False
    described: tuple[tuple[int, Slot], ...] | None = None
    todo: tuple[int, ...] | None = None
    got: tuple[tuple[int, Outcome], ...] = ()
    after: str = ""
    is_doomed: bool = False
    is_visible: bool = False
    is_preparing: bool = False
    is_aborting: bool = False
    half: int = NONE
    is_gone: bool = False
    is_begun: bool = False


class Turn(NamedTuple):
    """A program that is about to do something."""

    configuration: Configuration
    world: World
    number: int
    program: Program

    @property
    def driver(self) -> Driver:
        who = self.configuration.programs[self.number]
        assert isinstance(who, Driver)
        return who

    @property
    def may_end(self) -> int:
        """The last batch whose transactions it may end: who aborts for a person, what the log names, of any."""
        who = self.configuration.programs[self.number]
        return ANY_BATCH if isinstance(who, Person) and who.is_abort else self.program.batch

    def partitions(self, program: Program) -> tuple[Rows, ...]:
        """The rows of each task."""
        splits = self.driver.splits
        return splits[(self.number + program.run) % len(splits)](self.driver.batches[program.batch])

    def breaks(self, rule: str) -> bool:
        return self.configuration.broken == rule

    def becomes(self, program: Program, world: World | None = None) -> World:
        return (self.world if world is None else world).with_program(self.number, program)

    def does(self, *what: object) -> Label:
        return (self.number, *what)


@cache
def decided(decide: Decide, view: int) -> Step | Refused:
    return decide(VIEWS[view])
