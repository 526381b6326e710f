"""What dies, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_kafka_sink.exactly_once.failpoints import Failpoint

TASK_FAILPOINTS: tuple[Failpoint, ...] = (
    "task.start",
    "produce.before",
    "produce.after",
    "flush.before",
    "flush.after",
    "message.before",
)
COMMIT_FAILPOINTS: tuple[Failpoint, ...] = (
    "commit.start",
    "log.before",
    "log.after",
    "prepared.before",
    "prepared.after",
    "end.before",
    "end.after",
    "complete.before",
    "complete.after",
    "commit.end",  # what comes next is Spark's own commit log
)
# After complete.after, where there is something that nobody will commit: of a task that was killed, or of a replay.
SWEEP_FAILPOINTS: tuple[Failpoint, ...] = ("sweep.before", "sweep.after")


class Victim(StrEnum):
    """Who dies.

    PYTHON: the process that came to the failpoint, a worker or the one that commits. EXECUTOR: the Java process of a worker, with
    all its workers. DRIVER: Java and Python. BROKER: one, until the batch is committed. BROKERS: all three, and back at once.
    ERROR: nobody, but an exception is raised at the failpoint.
    """

    PYTHON = "python"
    EXECUTOR = "executor"
    DRIVER = "driver"
    BROKER = "broker"
    BROKERS = "brokers"
    ERROR = "error"


@dataclass(frozen=True)
class Kill:
    """The victim dies when `failpoint` is reached the `nth` time in a batch.

    again: in the very batch that the kill before struck, while that is made good; else in one that has begun after that was
    committed. late_ms: the process goes on, and the victim dies so many milliseconds later, somewhere between two failpoints.
    broker: of the victim `broker`, its id; 0: the one that the failpoint depends on (roles.py).
    """

    victim: Victim
    failpoint: Failpoint
    nth: int = 1
    again: bool = False
    late_ms: int = 0
    broker: int = 0

    def __str__(self) -> str:
        times = f" the {self.nth}. time" if self.nth > 1 else ""
        late = f", {self.late_ms} ms later" if self.late_ms else ""
        which = f" {self.broker}" if self.broker else ""
        return f"{self.victim}{which} at {self.failpoint}{times}{late}{' again' if self.again else ''}"


PYTHON, ERROR = Victim.PYTHON, Victim.ERROR

# Before and after each of: the first produce, the flush, the commit message, the prepared record, an EndTxn, the complete record,
# Spark's own commit log.
ALL_FAILPOINTS: Sequence[Failpoint] = (
    "produce.before",
    "produce.after",
    "flush.before",
    "flush.after",
    "message.before",
    "commit.start",
    "prepared.before",
    "prepared.after",
    "end.before",
    "end.after",
    "complete.before",
    "complete.after",
    "commit.end",
    "task.start",
)

WORKERS = [
    *(Kill(PYTHON, failpoint) for failpoint in TASK_FAILPOINTS),
    # The second attempt of a task as well.
    Kill(PYTHON, "flush.after", again=True),
    Kill(PYTHON, "message.before"),
    Kill(PYTHON, "message.before", again=True),
    *(Kill(PYTHON, failpoint, nth=4) for failpoint in TASK_FAILPOINTS),
    Kill(ERROR, "produce.after"),
    *(Kill(ERROR, failpoint, nth=2) for failpoint in TASK_FAILPOINTS),
]
# The batch is prepared, the first of its four transactions is committed, the last is open: an EndTxn is on its way before its
# connection takes another one, and there are at most three coordinators.
COMMITTED_IN_PART = Kill(PYTHON, "end.before", nth=4)
COMMITTERS = [
    Kill(ERROR, "log.after"),
    Kill(ERROR, "prepared.after"),
    COMMITTED_IN_PART,  # every other run has four tasks, this is the third
    *(Kill(PYTHON, failpoint) for failpoint in COMMIT_FAILPOINTS),
    Kill(PYTHON, "sweep.after", again=True),
    *(Kill(PYTHON, "end.after", nth=nth) for nth in (2, 3, 4)),
    *(Kill(ERROR, failpoint) for failpoint in ("prepared.before", "end.after", "complete.after")),
    # Who makes a kill good is killed as well.
    Kill(PYTHON, "prepared.after"),
    Kill(PYTHON, "end.after", again=True),
    Kill(PYTHON, "complete.before", again=True),
    Kill(PYTHON, "complete.after", again=True),
    Kill(PYTHON, "commit.end", again=True),
    Kill(PYTHON, "end.after", nth=2),
    Kill(PYTHON, "flush.after", again=True),
    Kill(PYTHON, "log.after", again=True),
    Kill(PYTHON, "commit.end"),
    Kill(PYTHON, "sweep.before", again=True),
]
COMMITTERS_OF_VERSION_1 = [
    *(Kill(PYTHON, failpoint) for failpoint in (*TASK_FAILPOINTS[::2], *COMMIT_FAILPOINTS)),
    *(Kill(PYTHON, "end.after", nth=nth) for nth in (2, 3)),
    Kill(PYTHON, "prepared.after"),
    Kill(PYTHON, "end.after", again=True),
]
