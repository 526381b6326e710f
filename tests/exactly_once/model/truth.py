"""What a program says of a batch, against what is so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.commit_rules import GiveUp, Reason, Stop
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused
from tests.exactly_once.model import values
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Person
from tests.exactly_once.model.coordinator import DEAD
from tests.exactly_once.model.program import OFF, Turn
from tests.exactly_once.model.values import RECORDS, TRANSACTIONS, VIEWS
from tests.exactly_once.model.world import BrokenError, World


def check_done(turn: Turn) -> None:
    """The batch is complete: each row is visible, but for what was dropped, and what a person has given up."""
    who = turn.configuration.programs[turn.number]
    last = VIEWS[turn.program.view].last
    if turn.program.is_aborting or who not in turn.configuration.drivers or last is None:
        return
    given_up = {row for each in _lost_transactions(turn) for row in TRANSACTIONS[each].rows if turn.configuration.accepts_loss}
    given_up |= _dropped(last) | (went_with_topic(turn.world, last) if worlds.is_told(turn.world) else set())
    batch = turn.program.batch
    begin = turn.driver.start or 0  # what came before, a person has given up
    batches = range(min(begin, batch) if turn.driver.ignores_failures else batch, batch + 1)
    for row in (row for each in batches for row in turn.driver.batches[each]):
        if not turn.world.visible[row] and row not in given_up:
            raise BrokenError(f"batch {batch} counts as complete, and row {row} is not visible")


def went_with_topic(world: World, last: CommitRecord) -> set[int]:
    """The rows of a topic that was replaced in the middle of the commit."""
    rows = {each: TRANSACTIONS[each].rows for each in values.numbers_of(last.handles)}
    is_begun = any(world.visible[row] for some in rows.values() for row in some)
    return {row for each, some in rows.items() for row in some if is_begun and TRANSACTIONS[each].topic != world.topic}


def _is_without_topic(turn: Turn) -> bool:
    """In part at least: the others may have timed out once this was noted, and were written again."""
    last = VIEWS[turn.program.view].last
    assert last is not None
    return any(TRANSACTIONS[each].topic != turn.world.topic for each in values.numbers_of(last.handles))


def _dropped(last: CommitRecord) -> set[int]:
    """The rows that no transaction of the batch has, because a broker rejected them."""
    stored = {row for each in values.numbers_of(last.handles) for row in TRANSACTIONS[each].rows}
    return {row for _, rows in values.rows_passed(last) for row in rows} - stored


def _lost_transactions(turn: Turn) -> tuple[int, ...]:
    last = VIEWS[turn.program.view].last
    assert last is not None
    return values.numbers_of(tuple(each for each in last.handles if each.transactional_id in last.aborted))


def is_visible(turn: Turn) -> bool:
    """Whether a row is that the program's own transactions are to make visible."""
    last = VIEWS[turn.program.view].last
    kept = () if last is None else tuple(each for each in last.handles if each.transactional_id in last.committed)
    kept_rows = {row for each in values.numbers_of(kept) for row in TRANSACTIONS[each].rows}
    return any(turn.world.visible[row] for each in turn.program.own for row in TRANSACTIONS[each].rows if row not in kept_rows)


def check_give_up(turn: Turn, step: GiveUp) -> None:
    if turn.program.is_visible:
        raise BrokenError("a batch was given up, and said not to be visible, that another driver had committed")
    if any(TRANSACTIONS[each].topic != turn.world.topic for each in turn.program.own):
        return
    for each in values.numbers_of(step.ended):
        if worlds.is_open(turn.world, each) and not worlds.slot_of(turn.world, each).is_old:
            raise BrokenError("a batch was given up because of a transaction that can be committed")


def check_stop(turn: Turn, step: Stop) -> None:
    if not IS_TRUE[step.reason](turn):
        raise BrokenError(f"a stop without a true reason: {step.reason.value}")


def _is_behind(turn: Turn) -> bool:
    """Who begins where Spark's checkpoint says is not behind."""
    last = turn.world.log.last
    return not turn.configuration.is_fresh_run and RECORDS[last].batch > turn.program.batch


def _has_other_rows(turn: Turn) -> bool:
    return turn.configuration.has_copies


def _was_aborted_by_broker(turn: Turn) -> bool:
    """Some, not all, and not before they were prepared. Or what became of them is forgotten."""
    last = VIEWS[turn.program.view].last
    assert last is not None
    transactions = values.numbers_of(last.to_commit)
    slots = [worlds.slot_of(turn.world, each) for each in transactions]
    if any(each.state == DEAD for each in slots):
        return True
    if _had_a_failure_ignored(turn) and any(each.transaction not in transactions for each in slots):
        return True  # by the next batch, which used an id again
    ended = [each.by_timeout for each in slots]
    return any(ended) and not turn.world.log.doomed and (not all(ended) or bool(last.committed))


def _had_a_failure_ignored(turn: Turn) -> bool:
    return any(each.ignores_failures for each in turn.configuration.drivers)


def _is_written_otherwise(turn: Turn) -> bool:
    """A task's rows are others than those that the log has of it."""
    last = VIEWS[turn.program.view].last
    assert last is not None
    passed = turn.partitions(turn.program)
    return {(number, rows) for number, rows in enumerate(passed) if rows} != values.rows_passed(last)


def _was_aborted_by_person(turn: Turn) -> bool:
    """By one who aborts, and has begun to."""
    who = zip(turn.configuration.programs, turn.world.programs, strict=True)
    return any(isinstance(each, Person) and each.is_abort and program.phase != OFF for each, program in who)


IS_TRUE: Final[dict[Reason, Callable[[Turn], bool]]] = {
    Reason.BEHIND: _is_behind,
    Reason.OTHER_ROWS: _has_other_rows,
    Reason.UNFINISHED: _had_a_failure_ignored,
    Reason.GAP: _had_a_failure_ignored,
    Reason.NO_RECORD: _had_a_failure_ignored,
    Reason.CLOSED: _was_aborted_by_person,
    Reason.UNRESOLVED: _was_aborted_by_broker,
    Reason.NOT_REPLAYED: _is_written_otherwise,
    Reason.TOPIC_REPLACED: _is_without_topic,
}


def check_refused(turn: Turn, step: Refused) -> None:
    if step.refusal is Refusal.PARTITION_UNKNOWN:
        raise BrokenError("every task knows its partition")
    asks = {Refusal.UNRESOLVED, Refusal.UNKNOWN}
    if step.refusal in asks and not _was_aborted_by_broker(turn):
        raise BrokenError("what a person is asked to resolve can be committed")


def failed(turn: Turn, world: World) -> World:
    """A job's abort() has returned."""
    if not turn.program.is_aborting:
        return world
    if any(world.visible):
        raise BrokenError("rows of a failed job are visible")
    on_its_way = {
        transaction for transaction, is_commit, _ in world.late if not is_commit
    }  # then abort() does not say that all is
    if any(worlds.is_open(world, each) for each in set(turn.program.own) - on_its_way):
        raise BrokenError("a failed job leaves a transaction open")
    return world._replace(failed=True)
