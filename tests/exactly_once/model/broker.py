"""What happens without any program: transactions time out, markers are written, and what was on its way arrives."""

from __future__ import annotations

from tests.exactly_once.model import coordinator
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Configuration
from tests.exactly_once.model.coordinator import DEAD, ONGOING, PENDING
from tests.exactly_once.model.program import COMMITS, Next
from tests.exactly_once.model.values import NONE
from tests.exactly_once.model.world import World


def steps(configuration: Configuration, world: World) -> Next:
    for number, slot in enumerate(world.slots):
        if slot.state in PENDING:
            yield ("markers", slot.transaction), world.with_slot(number, coordinator.completed(slot))
        elif slot.state == ONGOING:
            yield from _time(configuration, world, number)
        elif world.budget.forgotten and slot.transaction != NONE and slot.state != DEAD:
            forgotten = world.spend("forgotten").with_slot(number, slot._replace(state=DEAD))
            yield ("forgets", slot.transaction), forgotten
    if world.budget.replaced and not _is_being_committed(world):
        yield ("topic is replaced",), world.spend("replaced")._replace(topic=world.topic + 1)
    yield from _arrivals(configuration, world)


def _is_being_committed(world: World) -> bool:
    """EndTxn is sent right after the topics' ids were compared: what is replaced in between is lost, and no client can tell."""
    is_sending = any(each.phase == COMMITS and each.todo is not None for each in world.programs)
    return is_sending or any(is_commit for _, is_commit, _ in world.late)


def _time(configuration: Configuration, world: World, number: int) -> Next:
    """A transaction gets old, which the budget allows for some, and then it may time out."""
    slot = world.slots[number]
    aborted = world.with_slot(number, coordinator.timed_out(slot, configuration.version))
    if slot.is_old:
        yield ("times out", slot.transaction), aborted
    elif world.budget.timeouts and configuration.ages:
        yield ("gets old", slot.transaction), world.spend("timeouts").with_slot(number, slot._replace(is_old=True))
    elif world.budget.timeouts:
        yield ("times out", slot.transaction), aborted.spend("timeouts")


def _arrivals(configuration: Configuration, world: World) -> Next:
    if world.log.on_its_way != NONE:
        record, doomed = world.log.on_its_way, world.log.doomed_on_its_way
        yield ("record arrives", record), worlds.with_record(world, record, doomed)
    for index, (transaction, is_commit, batch) in enumerate(world.late):
        rest = world._replace(late=(*world.late[:index], *world.late[index + 1 :]))
        answer, after = worlds.end_txn(rest, transaction, is_commit, batch, configuration.has_markers)
        yield ("late EndTxn", transaction, is_commit, answer.name), after
