"""Breadth-first search through every order of events, for a state that must not be. The first that it finds is a shortest way.

An event is one request with its answer, or what a broker does by itself; programs decide in no time. Fewer states than there
are in the world, and none is missed that could go wrong in another way:

- A program that is never chosen again is one that has died, or one that is paused and comes back: there is no event for either.
  A crash is an event only because the same program, with the same Python workers, begins anew.
- A task's InitProducerId, Produce and flush are one event: until it has told of its transaction nobody can end that but by a
  list, which would find it open in the same way after the flush. So are the tasks of a run one after the other.
- Leftovers are aborted one after the other: a crash leaves any of the later ones, and which ones these are makes no difference.
- Values are numbered by what they are (values.py). A claim is who made it, not its epoch: only the last one counts.
- Programs that are over are alike, and know nothing.
- A request whose answer is lost is on its way for ever. That it arrives at once, and the sender asks again, is one of the orders.
"""

from __future__ import annotations

import gc
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from tests.exactly_once.model import broker, running
from tests.exactly_once.model.configuration import Configuration
from tests.exactly_once.model.coordinator import Slot
from tests.exactly_once.model.fresh_run import FreshRun
from tests.exactly_once.model.program import Next, Program, Turn
from tests.exactly_once.model.world import BrokenError, Log, World


@dataclass(frozen=True)
class Result:
    """states: how many were seen. broken: what must not be, None if nothing is; trace: the way there."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()


def search(configuration: Configuration) -> Result:
    gc.disable()  # millions of tuples, no cycles: the collector only looks at them again and again
    try:
        return _search(configuration)
    finally:
        gc.enable()


def _search(configuration: Configuration) -> Result:
    first = first_world(configuration)
    parents: dict[World, World | None] = {first: None}
    frontier = deque([first])
    fresh_run = FreshRun(configuration)
    while frontier:
        world = frontier.popleft()
        try:
            fresh_run.check(world)
            for _, after in _next(configuration, world):
                if after not in parents:
                    parents[after] = world
                    frontier.append(after)
        except BrokenError as error:
            return Result(len(parents), str(error), _trace(configuration, parents, world))
        assert len(parents) < 3_000_000, "the configuration is too large"
    return Result(len(parents))


def first_world(configuration: Configuration) -> World:
    drivers = configuration.drivers
    return World(
        slots=(Slot(),) * (configuration.slots * len(drivers)),
        log=Log(),
        visible=(0,) * configuration.row_count,
        late=(),
        checkpoint=(configuration.first_batch,) * (1 + max(each.checkpoint for each in drivers)),
        failed=False,
        budget=configuration.budget,
        programs=(Program(),) * len(configuration.programs),
    )


def _next(configuration: Configuration, world: World) -> Next:
    for number, program in enumerate(world.programs):
        yield from running.steps(Turn(configuration, world, number, program))
    yield from broker.steps(configuration, world)


def _trace(configuration: Configuration, parents: dict[World, World | None], world: World) -> tuple[str, ...]:
    way = [world]
    while (before := parents[way[-1]]) is not None:
        way.append(before)
    way.reverse()
    return tuple(_label(configuration, *pair) for pair in pairwise(way))


def _label(configuration: Configuration, before: World, after: World) -> str:
    return next(" ".join(map(str, label)) for label, reached in _next(configuration, before) if reached == after)
