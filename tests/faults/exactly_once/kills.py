"""What dies, and when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_kafka_sink.exactly_once.steps import Step

TASK_STEPS: tuple[Step, ...] = (
    "task.start",
    "produce.before",
    "produce.after",
    "flush.before",
    "flush.after",
    "message.before",
)
COMMIT_STEPS: tuple[Step, ...] = (
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
SWEEP_STEPS: tuple[Step, ...] = ("sweep.before", "sweep.after")


class Victim(StrEnum):
    """python: the process that came to the step, a worker or the one that commits. executor: the Java process of a worker, with
    all its workers. driver: Java and Python. broker: one, until the batch is committed. brokers: all three, and back at once.
    error: nobody, but an exception is raised at the step."""

    PYTHON = "python"
    EXECUTOR = "executor"
    DRIVER = "driver"
    BROKER = "broker"
    BROKERS = "brokers"
    ERROR = "error"


@dataclass(frozen=True)
class Kill:
    """The victim dies when `step` is reached the `nth` time in a batch.

    again: in the very batch that the kill before struck, while that is made good; else in one that has begun after that was
    committed. late_ms: the process goes on, and the victim dies so many milliseconds later, somewhere between two steps.
    broker: of the victim `broker`, its id; 0: the one that the step depends on (roles.py).
    """

    victim: Victim
    step: Step
    nth: int = 1
    again: bool = False
    late_ms: int = 0
    broker: int = 0

    def __str__(self) -> str:
        times = f" the {self.nth}. time" if self.nth > 1 else ""
        late = f", {self.late_ms} ms later" if self.late_ms else ""
        which = f" {self.broker}" if self.broker else ""
        return f"{self.victim}{which} at {self.step}{times}{late}{' again' if self.again else ''}"
