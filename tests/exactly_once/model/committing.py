"""The Committer: carries out what the real rules decide, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from spark_kafka_sink.exactly_once.commit_record import NO_ID, State
from spark_kafka_sink.exactly_once.commit_rules import Commit, Done, GiveUp, Look, Read, Reason, Stop, Write
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, outcome_of_end, proof_of
from spark_kafka_sink.exactly_once.recovery_rules import Refused
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.exactly_once.model import coordinator, truth, values
from tests.exactly_once.model import world as worlds
from tests.exactly_once.model.configuration import Driver, Person
from tests.exactly_once.model.ending import ends, with_late
from tests.exactly_once.model.program import DONE, ENDS, OFF, OVER, Next, Program, Turn, decided
from tests.exactly_once.model.values import NONE, RECORDS, TRANSACTIONS, VIEWS
from tests.exactly_once.model.world import World


def commits(turn: Turn) -> Next:
    step = decided(_rules(turn), turn.program.view)
    yield from CARRY_OUT[type(step)](turn, step)
    if turn.world.budget.errors and isinstance(turn.configuration.programs[turn.number], Driver) and not turn.program.is_aborting:
        yield from _error(turn, step)
    if turn.breaks("abort() asks the log first") and turn.world.budget.crashes:
        world = turn.world.spend("crashes")
        for each in turn.program.own:
            world = worlds.end_txn(world, each, False, turn.program.batch, has_markers=False)[1]
        yield turn.does("abort()"), world


def _rules(turn: Turn) -> Any:
    who = turn.configuration.programs[turn.number]
    if isinstance(who, Person):
        return who.decide
    return turn.configuration.abort if turn.program.is_aborting else turn.configuration.commit


def _error(turn: Turn, step: object) -> Next:
    """The next request of this attempt fails, and the commit with it. What can be in no record is aborted at once.

    A record that is refused is not in the log, and before it was decided the log was read under this claim: nothing else that was
    sent is there either.
    """
    is_refused = isinstance(step, Write) and step.state is State.PREPARED
    may_be_prepared = turn.program.is_preparing and not is_refused
    if turn.breaks("own transactions are aborted after an error only where none can be prepared"):
        may_be_prepared = False
    own = () if may_be_prepared else values.handles_of(turn.program.own)
    program = turn.program._replace(is_preparing=False, described=None, got=())
    yield from _begin_to_end(turn._replace(world=turn.world.spend("errors"), program=program), own, OFF)


# Read


def _read(turn: Turn, step: Read) -> Next:
    if turn.breaks("claim, then read"):
        yield from _read_then_claim(turn)
    elif turn.program.is_claimed:
        yield turn.does("reads the log"), turn.becomes(_with_read(turn, turn.world.log.last))
        if turn.breaks("wait for the LSO"):
            yield turn.does("reads the log too early"), turn.becomes(_with_read(turn, turn.world.log.before))
    else:
        program = turn.program._replace(is_claimed=True, is_doomed=_is_doomed(turn))
        yield turn.does("claims the log"), turn.becomes(program, _with_claim(turn))


def _read_then_claim(turn: Turn) -> Next:
    program, last = turn.program, turn.world.log.last
    if program.is_claimed:
        yield turn.does("claims the log"), turn.becomes(_with_read(turn, program.partition), _with_claim(turn))
    else:
        yield turn.does("reads the log"), turn.becomes(program._replace(is_claimed=True, partition=last))


def _with_claim(turn: Turn) -> World:
    """InitProducerId on the log's id: a record that is on its way will not arrive."""
    world = turn.world
    if turn.breaks("claim the log"):
        return world
    return world._replace(log=world.log._replace(claim=turn.number, on_its_way=NONE))


def _with_read(turn: Turn, last: int) -> Program:
    if turn.breaks("what was found out counts if nobody wrote since"):
        last = values.read_before(turn.program.view, last)
    return turn.program._replace(view=values.with_read(turn.program.view, last), is_claimed=False, partition=0)


def _is_doomed(turn: Turn) -> bool:
    own = turn.program.own
    return any(not worlds.is_open(turn.world, each) or worlds.slot_of(turn.world, each).is_old for each in own)


# Look


def _look(turn: Turn, step: Look) -> Next:
    program, world = turn.program, turn.world
    if program.described is None:
        described = tuple((each, worlds.slot_of(world, each)) for each in program.own)
        if turn.breaks("describe"):
            described = tuple((each, _as_written(each)) for each in program.own)
        yield turn.does("describes"), turn.becomes(program._replace(described=described, is_visible=truth.is_visible(turn)))
        return
    listed = () if turn.breaks("list before prepared") else worlds.listed(world)
    if turn.breaks("list"):
        listed = ()
    is_gone = any(_is_gone(turn, TRANSACTIONS[each].handle.topic_ids) for each in program.own)
    looked = values.with_look(program.view, program.described, listed, frozenset({"topic"} if is_gone else ()))
    is_visible = program.is_visible and isinstance(decided(_rules(turn), looked), Read | GiveUp)  # else nobody asks
    yield turn.does("lists"), turn.becomes(program._replace(view=looked, described=None, is_visible=is_visible))
    if world.budget.errors and isinstance(turn.configuration.programs[turn.number], Driver):
        unlisted = values.with_look(program.view, program.described, (), VIEWS[looked].replaced)
        after = program._replace(view=unlisted, described=None, is_visible=is_visible)
        yield turn.does("gets no list in time"), turn.becomes(after, world.spend("errors"))


def _as_written(transaction: int) -> coordinator.Slot:
    return coordinator.Slot(TRANSACTIONS[transaction].handle.epoch, coordinator.ONGOING, transaction)


# Write


def _write(turn: Turn, step: Write) -> Next:
    program, world = turn.program, turn.world
    if step.state is State.COMPLETE and turn.breaks("end orphans when the batch is complete"):
        world = _with_orphans_ended(turn)
    record = values.record(program.batch, step)
    if step.state is State.PREPARED and world.budget.errors:
        program = program._replace(is_preparing=True)
        turn = turn._replace(program=program)
    again = program._replace(view=values.begun_again(program.view))
    if world.log.claim != turn.number and not turn.breaks("claim the log"):
        if turn.breaks("start again when fenced"):
            again, world = program, _with_claim(turn)
        yield turn.does("is fenced"), turn.becomes(again, world)
        return
    last = VIEWS[program.view].last
    is_again = last is not None and last.state is State.PREPARED
    is_doomed = step.state is State.PREPARED and (world.log.doomed if is_again else program.is_doomed)
    written = _written(turn, record)
    after = worlds.with_record(world, record, is_doomed)
    if turn.breaks("wait for the LSO"):
        after = after._replace(log=after.log._replace(before=world.log.last))
    if written.phase == OVER and turn.breaks("who completes a job does not remove its record"):
        after = after._replace(log=after.log._replace(last=NONE))
    yield turn.does("writes", record), turn.becomes(written, after)
    if world.budget.lost:
        log = world.log._replace(on_its_way=record, doomed_on_its_way=is_doomed)
        if turn.breaks("a record counts when its EndTxn is answered"):
            again = written
        yield turn.does("sends, and hears nothing", record), turn.becomes(again, world._replace(log=log).spend("lost"))


def _written(turn: Turn, record: int) -> Program:
    """Who resolves is at the end then, who aborts has only said what he will abort."""
    who = turn.configuration.programs[turn.number]
    if isinstance(who, Person) and not who.is_abort and RECORDS[record].state is not State.PREPARED:
        return turn.program._replace(phase=OVER, view=NONE)
    return turn.program._replace(view=values.with_written(turn.program.view, record))


# Commit


def _commit(turn: Turn, step: Commit) -> Next:
    program = turn.program
    if program.todo is None and turn.breaks("end orphans when every EndTxn is answered"):
        turn = turn._replace(world=_with_orphans_ended(turn))
    todo = program.todo
    if todo is None:
        todo, last = values.numbers_of(step.handles), VIEWS[program.view].last
        ids = last.topic_ids if last is not None else ()  # a rule that is left out may have written no record
        left = tuple(each for each in todo if not _is_committed(turn, each))
        is_gone, is_begun = bool(left) and _is_gone(turn, ids), len(left) < len(todo)
        is_noted = is_begun and not turn.breaks("what is committed in part is committed as a whole")
        if is_gone and is_noted and not turn.breaks("what goes with its topic is noted before the rest is committed"):
            yield (
                turn.does("notes that the topic was replaced"),
                turn.becomes(program._replace(view=values.with_gone(program.view))),
            )
            return
        turn = turn._replace(program=program._replace(is_gone=is_gone and not is_noted, is_begun=is_begun))
    if not todo:
        view = values.with_outcomes(program.view, program.got)
        after = program._replace(view=view, todo=None, got=(), is_gone=False, is_begun=False)
        yield turn.does("knows the outcomes", program.got), turn.becomes(after)
        return
    for each in todo:
        yield from _end_txn(turn, each, tuple(other for other in todo if other != each))


def _is_gone(turn: Turn, topic_ids: tuple[tuple[str, str], ...]) -> bool:
    if turn.breaks("only what is still there is committed"):
        return False
    return any(each not in (NO_ID, str(turn.world.topic)) for _, each in topic_ids)


def _is_committed(turn: Turn, transaction: int) -> bool:
    described = values.description(worlds.slot_of(turn.world, transaction))
    return proof_of(TRANSACTIONS[transaction].handle, described) is Proof.COMMITTED


def _end_txn(turn: Turn, transaction: int, others: tuple[int, ...]) -> Next:
    program, world, configuration = turn.program, turn.world, turn.configuration
    is_commit = not program.is_gone
    other_version = turn.breaks("one EndTxn version for each transaction") and turn.number > 0
    answer, after = worlds.end_txn(world, transaction, is_commit, program.batch, configuration.has_markers, other_version)
    if not is_commit and after != world and not program.is_begun:  # to everybody else it has timed out
        after = after.with_slot(TRANSACTIONS[transaction].slot, worlds.slot_of(after, transaction)._replace(by_timeout=True))
    if answer is not ErrorCode.CONCURRENT_TRANSACTIONS:
        outcome = _proved(transaction, answer, worlds.slot_of(after, transaction), is_commit)
        got = tuple(sorted((*program.got, (transaction, outcome))))
        yield (
            turn.does(f"EndTxn({'commit' if is_commit else 'abort'})", transaction, answer.name, outcome.value),
            turn.becomes(program._replace(todo=others, got=got), after),
        )
    if world.budget.lost:
        yield turn.does("EndTxn, late", transaction, is_commit), with_late(turn, transaction, is_commit)


@cache
def _proved(transaction: int, answer: ErrorCode, slot: coordinator.Slot, is_commit: bool) -> Outcome:
    """TransactionClient.end_surely: by EndTxn's answer, else by DescribeTransactions."""
    handle = TRANSACTIONS[transaction].handle
    outcome = outcome_of_end(handle, answer, committed=is_commit)
    if outcome is not Outcome.UNKNOWN:
        return outcome
    proof = Proof.UNKNOWN if slot.state == coordinator.DEAD else proof_of(handle, values.description(slot))
    return Outcome(proof.value) if proof is not Proof.OPEN else Outcome.UNKNOWN


def _with_orphans_ended(turn: Turn) -> World:
    """Too early."""
    view, world = VIEWS[turn.program.view], turn.world
    assert view.last is not None
    for each in values.numbers_of(tuple(set(view.listed or ()) - set(view.last.handles))):
        world = worlds.end_txn(world, each, False, turn.program.batch, has_markers=False)[1]
    return world


# The end


def _done(turn: Turn, step: Done) -> Next:
    truth.check_done(turn)
    leftovers = step.leftovers
    if turn.breaks("list before prepared"):
        own = set(values.numbers_of(VIEWS[turn.program.view].own_handles))
        leftovers = (*leftovers, *values.handles_of(tuple(each for each in worlds.listed(turn.world) if each not in own)))
    yield from _begin_to_end(turn, leftovers, DONE)


def _give_up(turn: Turn, step: GiveUp) -> Next:
    truth.check_give_up(turn, step)
    yield from _begin_to_end(turn, step.leftovers, OFF)


def _stop(turn: Turn, step: Stop) -> Next:
    truth.check_stop(turn, step)
    if step.reason is Reason.TOPIC_REPLACED:
        turn = turn._replace(world=turn.world._replace(is_told=True))
    yield from _begin_to_end(turn, step.leftovers, OVER)


def _refused(turn: Turn, step: Refused) -> Next:
    truth.check_refused(turn, step)
    yield turn.does("refuses", step.refusal.name), turn.becomes(Program(phase=OVER))


def _begin_to_end(turn: Turn, leftovers: tuple[Any, ...], after: str) -> Next:
    program = turn.program._replace(phase=ENDS, todo=values.numbers_of(leftovers), after=after)
    yield from ends(turn._replace(program=program))


CARRY_OUT: Final[Mapping[type, Callable[..., Next]]] = {
    Read: _read,
    Look: _look,
    Write: _write,
    Commit: _commit,
    Done: _done,
    GiveUp: _give_up,
    Stop: _stop,
    Refused: _refused,
}
