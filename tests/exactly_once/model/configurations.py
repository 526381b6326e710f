"""What is searched in full. Each has several failures at any time; together they take about three minutes of one core."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.exactly_once.model.configuration import (
    Configuration,
    Driver,
    Person,
    accept_loss,
    recover,
    spread,
    swapped,
    together,
)
from tests.exactly_once.model.left_out import (
    ABORT,
    ALONE,
    AT_ONCE,
    DRIVER,
    DRIVERS,
    JOB,
    LONG_DRIVERS,
    ONE_BATCH,
    REPEATING,
    REPLAY,
    SLOW,
)
from tests.exactly_once.model.world import Budget

STUBBORN: Final = Driver(ONE_BATCH, splits=(together, spread), runs=3)
CHANGEABLE: Final = replace(STUBBORN, splits=(spread, swapped))
THEN_SMALL: Final = Driver(((0, 1), (2,)))
RECOVER: Final = Person(recover)

# All that depends on what EndTxn and DescribeTransactions say, and on epochs after an abort: with both versions of transactions.
_BOTH_VERSIONS: Final[dict[str, Configuration]] = {
    "a driver that crashes": Configuration((STUBBORN,), budget=Budget(crashes=2, lost=1, timeouts=1, dead_attempts=1), slots=8),
    "a driver whose transactions time out": Configuration((STUBBORN,), budget=Budget(crashes=1, timeouts=3), slots=6),
    "a driver whose transactions get old": Configuration((STUBBORN,), budget=Budget(crashes=1, timeouts=2), ages=True, slots=8),
    "a driver that is away for a week": Configuration((STUBBORN,), budget=Budget(crashes=1, timeouts=1, forgotten=2), slots=8),
    "a driver whose commits end with errors": Configuration((STUBBORN,), budget=Budget(errors=2, lost=1, timeouts=1), slots=8),
    "two drivers, errors": Configuration((replace(DRIVER, runs=2), DRIVER), budget=Budget(errors=1, lost=1), slots=4),
    "a job whose commit ends with an error": Configuration((JOB, RECOVER), budget=Budget(errors=1, lost=1), slots=3),
    "a driver whose commit log is lost": Configuration(
        (replace(THEN_SMALL, start=1, runs=3, batches=((0,), (1, 2), (3,))),),
        budget=Budget(crashes=1, timeouts=1, lost=1),
        slots=8,
        first_batch=1,
    ),
    "a driver whose topic is replaced": Configuration((ALONE,), budget=Budget(crashes=1, timeouts=1, replaced=1)),
    "two drivers, a replaced topic": Configuration(DRIVERS, budget=Budget(replaced=1), slots=2),
    "two drivers, a replaced topic, lost answers": Configuration(DRIVERS, budget=Budget(replaced=1, lost=1), slots=2),
    "a job, its recovery and a replaced topic": Configuration((JOB, RECOVER), budget=Budget(replaced=1, crashes=1), slots=2),
    "a replay, a replaced topic": Configuration((REPEATING, REPLAY), budget=Budget(timeouts=1, replaced=1), slots=4),
    "two drivers, lost answers": Configuration(DRIVERS, budget=Budget(lost=2, timeouts=1), slots=2),
    "two drivers, time-outs": Configuration(DRIVERS, budget=Budget(timeouts=2, dead_attempts=1), slots=3),
    "two drivers, one crashes": Configuration((replace(DRIVER, runs=2), DRIVER), budget=Budget(crashes=1, timeouts=1), slots=4),
    "two drivers, two batches": Configuration(LONG_DRIVERS, budget=Budget(lost=1, timeouts=1), slots=2),
    "two drivers, two batches, orphans": Configuration((THEN_SMALL, THEN_SMALL), budget=Budget(dead_attempts=1), slots=3),
    "two drivers, slow tasks": Configuration((SLOW, SLOW), budget=Budget(lost=1, timeouts=1), slots=2),
    "two drivers, slow tasks, one crashes": Configuration(
        (replace(SLOW, runs=2), AT_ONCE), budget=Budget(crashes=1, timeouts=1), slots=2
    ),
    "two drivers, slow tasks, slow markers": Configuration((SLOW, SLOW), budget=Budget(timeouts=1), has_markers=True, slots=2),
    "slow tasks and their abort": Configuration((SLOW, ABORT), budget=Budget(lost=1, timeouts=1), slots=1),
    "a job of slow tasks": Configuration((replace(SLOW, is_job=True), RECOVER), budget=Budget(errors=1, timeouts=1), slots=2),
    "two drivers, slow markers": Configuration(DRIVERS, budget=Budget(lost=1, timeouts=1), has_markers=True, slots=2),
    "two drivers, slow markers, two batches": Configuration(LONG_DRIVERS, has_markers=True, slots=2),
    "a replay, crashes": Configuration((replace(REPEATING, runs=3), REPLAY), budget=Budget(timeouts=2, crashes=1), slots=8),
    "a driver whose rows are rejected": Configuration((STUBBORN,), budget=Budget(crashes=2, timeouts=1, rejected=2), slots=8),
    "a replay, rejected rows": Configuration(
        (replace(REPEATING, runs=3), REPLAY), budget=Budget(timeouts=2, rejected=2), slots=8
    ),
    "a job and its recovery": Configuration((JOB, RECOVER), budget=Budget(timeouts=1, lost=1, dead_attempts=1), slots=3),
    "a job and its abort": Configuration((JOB, ABORT), budget=Budget(timeouts=1, lost=1, crashes=1, dead_attempts=1), slots=3),
    "a job, its abort and its recovery": Configuration((JOB, ABORT, RECOVER), budget=Budget(timeouts=1), slots=2),
    "a stream and its abort": Configuration((STUBBORN, ABORT), budget=Budget(timeouts=1, crashes=1), slots=6),
    "two streams and their abort": Configuration((*LONG_DRIVERS, ABORT), slots=2),
}

_VERSION_2: Final[dict[str, Configuration]] = {
    "two drivers, one crashes, lost answers": Configuration(
        (replace(DRIVER, runs=2), DRIVER), budget=Budget(crashes=1, lost=1, timeouts=1), slots=4
    ),
    "two drivers, two batches, orphans, time-outs": Configuration(
        (THEN_SMALL, THEN_SMALL), budget=Budget(dead_attempts=1, timeouts=1), slots=3
    ),
    "three drivers": Configuration((Driver(((0,),)),) * 3, budget=Budget(lost=1), slots=2),
    "two drivers and a replay": Configuration((REPEATING, DRIVER, REPLAY), budget=Budget(timeouts=1), slots=4),
    "a replay with other rows": Configuration((CHANGEABLE, REPLAY), budget=Budget(timeouts=2, crashes=1), slots=8),
    "a replay with other rows, rejected rows": Configuration(
        (CHANGEABLE, REPLAY), budget=Budget(timeouts=2, rejected=1), slots=8
    ),
    "two drivers, rejected rows": Configuration(
        (replace(DRIVER, runs=2), DRIVER), budget=Budget(timeouts=1, rejected=1), slots=4
    ),
    "a replay and an accepted loss": Configuration(
        (REPEATING, REPLAY, Person(accept_loss)), budget=Budget(timeouts=1, lost=1), slots=4, accepts_loss=True
    ),
}

CONFIGURATIONS: Final = {
    **{f"{name}, version 1": replace(each, version=1) for name, each in _BOTH_VERSIONS.items()},
    **_BOTH_VERSIONS,
    **_VERSION_2,
}

SMALL: Final = frozenset(
    {
        "a driver that is away for a week",
        "a driver whose commit log is lost",
        "a driver whose commits end with errors",
        "a driver whose topic is replaced",
        "a driver whose transactions get old",
        "a driver whose transactions time out",
        "a job of slow tasks",
        "a job of slow tasks, version 1",
        "a job whose commit ends with an error",
        "a job whose commit ends with an error, version 1",
        "a job, its recovery and a replaced topic",
        "a job, its recovery and a replaced topic, version 1",
        "slow tasks and their abort",
        "slow tasks and their abort, version 1",
        "two drivers, a replaced topic",
        "two drivers, slow markers, two batches",
    }
)
"""What `make test` searches: configurations that take less than a second of processor time, together a tenth of the time of all.
For each of the others it has a smaller one: here, or among those of left_out.py, which it searches with every rule as well."""
