"""Kills drawn at random, the same ones for the same seed."""

from __future__ import annotations

import random

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.kills import COMMIT_FAILPOINTS, SWEEP_FAILPOINTS, TASK_FAILPOINTS, Kill, Victim

# How often each is drawn. Whatever has a virtual machine of Java takes seconds to start again. Executors never die here, for
# these queries run in one process of Java, nor is a driver paused that comes back: the suite has tests of both.
WEIGHTS = {
    Victim.PYTHON: 60,
    Victim.ERROR: 12,
    Victim.BROKER: 15,
    Victim.BROKERS: 5,
    Victim.DRIVER: 8,
}
# A batch has at least as many tasks.
FEWEST_TASKS = 3
LATEST_MS = 40


def random_kill(draw: random.Random) -> Kill:
    victim = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    failpoint = draw.choice([*TASK_FAILPOINTS, *COMMIT_FAILPOINTS, *SWEEP_FAILPOINTS])
    return Kill(
        victim,
        failpoint,
        nth=draw.randint(1, FEWEST_TASKS) if comes_often(failpoint) else 1,
        again=failpoint in SWEEP_FAILPOINTS or draw.random() < 0.3,
        late_ms=draw.randint(1, LATEST_MS) if draw.random() < 0.4 and victim is not Victim.ERROR else 0,
        broker=draw.randint(0, 3) if victim is Victim.BROKER else 0,
    )


def comes_often(failpoint: Failpoint) -> bool:
    """Once for each task of a batch."""
    return failpoint in TASK_FAILPOINTS or failpoint.startswith("end.")
