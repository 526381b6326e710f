"""`make chaos`: kills at random, and after each query a look that every row is there once.

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
from pathlib import Path

from tests.faults.exactly_once.driver import LOCAL
from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.moved import moved
from tests.faults.exactly_once.random_kills import FEWEST_TASKS, random_kill
from tests.faults.exactly_once.siege import Siege
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka

KILLS = 500
KILLS_OF_A_QUERY = 25
CALM_BATCHES = 3


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
        for first in range(0, kills, KILLS_OF_A_QUERY):
            _one_query(draw, min(KILLS_OF_A_QUERY, kills - first), folder / f"query-{first}", brokers, fleet)


def _one_query(draw: random.Random, count: int, folder: Path, brokers: Brokers, fleet: Fleet) -> None:
    folder.mkdir()
    begun = time.monotonic()
    kills = [random_kill(draw) for _ in range(count)]
    rows, query = moved(brokers, brokers.create_topic(folder.name, 4), folder, count + CALM_BATCHES)
    shuffled = draw.random() < 0.3
    variants = [replace(query, shuffled=shuffled), replace(query, shuffled=shuffled, tasks=FEWEST_TASKS)]
    with Siege(brokers, variants, fleet, LOCAL) as siege:
        siege.run(kills)
        siege.judge(rows)
    victims = ", ".join(f"{number} {victim}" for victim, number in Counter(kill.victim for kill in siege.made).items())
    print(f"{folder.name}: {victims}; {rows.total} rows once each; {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
