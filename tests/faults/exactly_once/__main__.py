"""`make chaos`: kills at random, and after each query a look that every row is there once.

Executors that die and drivers that are paused are not among them: tests of their own have those.

SEED repeats a run, KILLS says how many, BROKER=kafka takes real brokers.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.driver import LOCAL, Fleet
from tests.faults.exactly_once.kills import COMMIT_FAILPOINTS, SWEEP_FAILPOINTS, TASK_FAILPOINTS, Kill, Victim
from tests.faults.exactly_once.numbered_rows import moved
from tests.faults.exactly_once.siege import Siege
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka

KILLS = 500
KILLS_OF_A_QUERY = 25
MORE_BATCHES = 10
PATIENCE = 2
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


def main() -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1_000_000))
    kills = int(os.environ.get("KILLS") or KILLS)
    real = os.environ.get("BROKER") == "kafka"
    print(f"{kills} kills, BROKER={'kafka' if real else 'embedded'} SEED={seed}", flush=True)
    draw = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers: Brokers = stack.enter_context(KafkaCluster(3) if real else EmbeddedKafka(3))
        fleet = stack.enter_context(Fleet(folder))
        made = Counter[str]()
        for number in count(1):
            made += _one_query(draw, folder / f"query-{number}", brokers, fleet)
            print(f"  {made.total()} kills: {', '.join(f'{times} {victim}' for victim, times in made.most_common())}", flush=True)
            if made.total() >= kills:
                return


def _one_query(draw: random.Random, folder: Path, brokers: Brokers, fleet: Fleet) -> Counter[str]:
    """Which victims it had."""
    folder.mkdir()
    begun = time.monotonic()
    kills = [random_kill(draw) for _ in range(KILLS_OF_A_QUERY)]
    rows, query = moved(brokers, brokers.create_topic(folder.name, 4), folder, KILLS_OF_A_QUERY + MORE_BATCHES)
    shuffled = draw.random() < 0.3
    variants = [replace(query, shuffled=shuffled), replace(query, shuffled=shuffled, tasks=FEWEST_TASKS)]
    with Siege(brokers, variants, fleet, LOCAL) as siege:
        siege.run(kills, PATIENCE)
        siege.judge(rows)
    seconds = time.monotonic() - begun
    print(f"{folder.name}: {len(siege.made)} kills, {rows.total} rows once each, in {seconds:.0f} s", flush=True)
    if siege.skipped:
        print(f"  never due: {', '.join(map(str, siege.skipped))}", flush=True)
    return Counter(kill.victim for kill in siege.made)


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


if __name__ == "__main__":
    main()
