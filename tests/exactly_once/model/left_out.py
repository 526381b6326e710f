"""The table of rules that are there for safety: each with the smallest configuration that shows what happens without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spark_kafka_sink.exactly_once import commit_rules, recovery_rules
from spark_kafka_sink.exactly_once.commit_record import State
from tests.exactly_once.model import mutations
from tests.exactly_once.model.configuration import Configuration, Driver, Person, recover, replay, spread, swapped, together
from tests.exactly_once.model.world import Budget

ONE_BATCH: Final = ((0, 1),)
TWO_SMALL_BATCHES: Final = ((0,), (1,))
THREE_SMALL_BATCHES: Final = ((0,), (1,), (2,))

ALONE: Final = Driver(ONE_BATCH, splits=(together, spread), runs=2)
DRIVER: Final = Driver(ONE_BATCH)
DRIVERS: Final = (DRIVER, DRIVER)
LONG_DRIVERS: Final = (Driver(TWO_SMALL_BATCHES),) * 2
IGNORING: Final = Driver(THREE_SMALL_BATCHES, ignores_failures=True)
REPEATING: Final = Driver(ONE_BATCH, splits=(spread,), runs=2)
CHANGING: Final = Driver(ONE_BATCH, splits=(spread, swapped), runs=2)
BEGINNING: Final = Driver(((0, 1), (2,)), splits=(spread,), ignores_failures=True, start=1)
AT_ONCE: Final = Driver(ONE_BATCH, splits=(together,))
SLOW: Final = Driver(ONE_BATCH, splits=(together,), is_slow=True)
JOB: Final = Driver(ONE_BATCH, splits=(spread,), is_job=True)
ABORT: Final = Person(recovery_rules.abort, is_abort=True)
REPLAY: Final = Person(replay)

# Two drivers that run on copies of one checkpoint, and see other rows: the second row belongs to the first batch of only one.
COPIES: Final = (Driver(((0,), (1,)), checkpoint=0), Driver(((0, 1), (2,)), checkpoint=1))

LEFT_OUT: Final[dict[str, Configuration]] = {
    # The commit log
    "claim the log": Configuration(DRIVERS),
    "claim, then read": Configuration(DRIVERS),
    "wait for the LSO": Configuration(DRIVERS),
    "a record counts when its EndTxn is answered": Configuration(DRIVERS, budget=Budget(lost=1, crashes=1)),
    "start again when fenced": Configuration(DRIVERS),
    # Tasks
    "an id of each attempt's own": Configuration(DRIVERS),
    "InitProducerId before a slot is used again": Configuration(
        (Driver(TWO_SMALL_BATCHES, runs=2),), version=1, budget=Budget(lost=1)
    ),
    "leaders verify that a partition is in the transaction": Configuration((SLOW, SLOW), version=1),
    # commit()
    "an old driver stops": Configuration(LONG_DRIVERS, commit=mutations.goes_on_behind),
    "a gap stops": Configuration((IGNORING,), budget=Budget(timeouts=1), commit=mutations.goes_on_over_gap),
    "an unfinished batch stops": Configuration((IGNORING,), budget=Budget(timeouts=1), commit=mutations.goes_on_after_unfinished),
    "no record stops": Configuration((IGNORING,), budget=Budget(timeouts=1), commit=mutations.goes_on_without_record),
    "commit.log.start leaves nothing prepared behind": Configuration(
        (BEGINNING,), budget=Budget(timeouts=1), commit=mutations.begins_over(State.PREPARED)
    ),
    "commit.log.start leaves nothing behind that is to be replayed": Configuration(
        (BEGINNING, REPLAY), budget=Budget(timeouts=1), commit=mutations.begins_over(State.REPLAY)
    ),
    "other rows stop": Configuration(COPIES, has_copies=True, commit=mutations.ignores_totals),
    "a replay whose other rows brokers reject is the same batch": Configuration(
        (ALONE,), budget=Budget(crashes=1, rejected=1), commit=mutations.compares_stored_rows
    ),
    "a complete batch is done": Configuration(DRIVERS, commit=mutations.writes_complete_batch_again),
    "a prepared batch is rolled forward": Configuration(DRIVERS, commit=mutations.writes_prepared_batch_again),
    "prepared before any EndTxn": Configuration((ALONE,), budget=Budget(crashes=1), commit=mutations.commits_without_prepared),
    "complete when every EndTxn is answered": Configuration(
        (ALONE,), budget=Budget(crashes=1), commit=mutations.completes_before_commit
    ),
    "describe": Configuration((ALONE,), budget=Budget(timeouts=1)),
    "not too old": Configuration((ALONE,), budget=Budget(timeouts=1), ages=True, commit=mutations.ignores_age),
    "a transaction that began again is not whole": Configuration(
        (SLOW, replace(AT_ONCE, begins_after=2), ABORT),
        version=1,
        budget=Budget(timeouts=1),
        slots=1,
        commit=mutations.ignores_partitions,
    ),
    "own transactions are aborted after an error only where none can be prepared": Configuration(
        (ALONE,), budget=Budget(errors=1)
    ),
    "only what is still there is committed": Configuration((ALONE,), budget=Budget(replaced=1)),
    "what goes with its topic is noted before the rest is committed": Configuration(
        (ALONE,), budget=Budget(crashes=2, replaced=1), slots=8
    ),
    "who finds rows gone with their topic says so": Configuration(
        (ALONE,), budget=Budget(crashes=1, replaced=1), commit=mutations.completes_without_telling
    ),
    "what is committed in part is committed as a whole": Configuration((ALONE,), budget=Budget(crashes=1, replaced=1)),
    # What EndTxn's answer proves
    "unknown is not aborted": Configuration(
        (ALONE,), budget=Budget(forgotten=1, crashes=1), commit=mutations.takes_unknown_for_aborted
    ),
    "some aborted are not all": Configuration((ALONE,), budget=Budget(timeouts=1), commit=mutations.takes_some_aborted_for_all),
    "read again before judging": Configuration(LONG_DRIVERS, commit=mutations.judges_without_reading_again),
    "read again before giving up": Configuration(DRIVERS, commit=mutations.gives_up_without_reading_again),
    "what was found out counts if nobody wrote since": Configuration(DRIVERS),
    "one EndTxn version for each transaction": Configuration(DRIVERS, version=1),
    # Orphans
    "list": Configuration((ALONE,), budget=Budget(dead_attempts=1)),
    "list before prepared": Configuration(LONG_DRIVERS),
    "end orphans when every EndTxn is answered": Configuration(DRIVERS, budget=Budget(timeouts=1)),
    "orphans are ended by their own epoch": Configuration(LONG_DRIVERS),
    "no sweep at the start of a run": Configuration(DRIVERS),
    "abort() asks the log first": Configuration((ALONE,), budget=Budget(crashes=1)),
    # Batch jobs, and what people abort
    "a closed run stops": Configuration((JOB, ABORT), commit=mutations.ignores_closed),
    "closed before any is aborted": Configuration((JOB, Person(mutations.aborts_before_closed, is_abort=True))),
    "what is prepared is not aborted": Configuration((JOB, Person(mutations.aborts_what_is_prepared, is_abort=True))),
    "an abort keeps what the log says": Configuration(
        (ALONE, Person(mutations.forgets_last_record, is_abort=True)), budget=Budget(crashes=1, dead_attempts=1)
    ),
    "what is to be replayed is not aborted": Configuration(
        (REPEATING, REPLAY, Person(mutations.aborts_what_is_to_be_replayed, is_abort=True)), budget=Budget(timeouts=1)
    ),
    "who completes a job does not remove its record": Configuration((JOB, Person(recover))),
    # While the cluster remembers the transactions of a complete job, they refuse an abort as well.
    "a job's record stays when it is complete": Configuration((JOB,), budget=Budget(forgotten=2)),
    # resolve
    "unknown is not replayed": Configuration(
        (REPEATING, Person(mutations.replays_unknown)), budget=Budget(forgotten=1, timeouts=1)
    ),
    "only what is aborted is replayed": Configuration(
        (REPEATING, Person(mutations.replays_committed)), budget=Budget(timeouts=1)
    ),
    "what a replay has kept is not written again": Configuration(
        (replace(REPEATING, runs=3), REPLAY), budget=Budget(timeouts=2), slots=8, commit=mutations.writes_all_again
    ),
    "rows are the same if Spark passes the same": Configuration(
        (REPEATING, REPLAY), budget=Budget(timeouts=1, rejected=1), commit=mutations.compares_stored_rows
    ),
    "only the same rows are replayed": Configuration(
        (CHANGING, REPLAY), budget=Budget(timeouts=1), commit=mutations.replays_without_checksum
    ),
}


def whole(configuration: Configuration) -> Configuration:
    """With every rule."""
    programs = tuple(_whole_program(each) for each in configuration.programs)
    return replace(configuration, programs=programs, commit=commit_rules.decide, abort=recovery_rules.abort)


def _whole_program(program: Driver | Person) -> Driver | Person:
    if isinstance(program, Driver):
        return program
    if program.is_abort:
        return ABORT
    return program if program.decide is recover else REPLAY
