"""What a search goes through: programs, rows, failures, and which rule is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.exactly_once import commit_rules, recovery_rules
from spark_kafka_sink.exactly_once.commit_rules import Step, View
from spark_kafka_sink.exactly_once.recovery_rules import Refused, Resolution
from tests.exactly_once.model.world import Budget

Decide = Callable[[View], Step | Refused]
Rows = tuple[int, ...]
Split = Callable[[Rows], tuple[Rows, ...]]


def spread(rows: Rows) -> tuple[Rows, ...]:
    return tuple((each,) for each in rows)


def swapped(rows: Rows) -> tuple[Rows, ...]:
    return tuple((each,) for each in reversed(rows))


def together(rows: Rows) -> tuple[Rows, ...]:
    """The second task of two has nothing to write."""
    return (rows, *(() for _ in rows[1:]))


def recover(view: View) -> Step | Refused:
    return recovery_rules.resolve(view, Resolution.RECOVER)


def accept_loss(view: View) -> Step | Refused:
    return recovery_rules.resolve(view, Resolution.ACCEPT_LOSS)


def replay(view: View) -> Step | Refused:
    return recovery_rules.resolve(view, Resolution.REPLAY)


NO_FAILURES: Final = Budget()


@dataclass(frozen=True)
class Driver:
    """A Spark driver and its Python workers, which outlive its runs. batches: the rows of each; another driver may have others
    only where each has a checkpoint of its own. runs: how often it is started. is_slow: a task's first row is written before its
    others (tasks.py). is_job: it has one batch, and calls abort() when that fails. ignores_failures: a foreachBatch function that
    goes on when publish() raised. start: its commit.log.start. begins_after: the number of a program that is over before it is
    started; None: none."""

    batches: tuple[Rows, ...]
    splits: tuple[Split, ...] = (spread, together)
    runs: int = 1
    checkpoint: int = 0
    is_slow: bool = False
    is_job: bool = False
    ignores_failures: bool = False
    start: int | None = None
    begins_after: int | None = None


@dataclass(frozen=True)
class Person:
    """Runs the command line once, at any time: a decision of recovery_rules.py."""

    decide: Decide
    is_abort: bool = False


@dataclass(frozen=True)
class Configuration:
    """version: of transactions. has_markers: transactions are decided at one time and done at another. ages: a transaction is
    old for a while before it may time out. slots: for each driver. broken: the rule that is left out. commit, abort: the rules.
    has_copies: of a checkpoint. accepts_loss: a person does. first_batch: Spark's checkpoint
    has it where the query's log is lost."""

    programs: tuple[Driver | Person, ...]
    version: int = 2
    budget: Budget = NO_FAILURES
    has_markers: bool = False
    ages: bool = False
    slots: int = 6
    first_slot: int = 0
    broken: str = ""
    commit: Decide = commit_rules.decide
    abort: Decide = recovery_rules.abort
    is_fresh_run: bool = False
    has_copies: bool = False
    accepts_loss: bool = False
    first_batch: int = 0

    @property
    def drivers(self) -> tuple[Driver, ...]:
        return tuple(each for each in self.programs if isinstance(each, Driver))

    @property
    def row_count(self) -> int:
        return 1 + max(row for driver in self.drivers for batch in driver.batches for row in batch)
