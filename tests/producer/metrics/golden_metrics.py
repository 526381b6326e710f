"""What GoldenMetrics.java prints, and golden/: what it printed with Kafka 4.1.0."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka.jars import jars
from tests.kafka.java import LOG4J, java

GOLDEN = Path(__file__).parent / "golden"
STATISTICS = GOLDEN / "statistics.txt"
NAMES = GOLDEN / "names.txt"

JavaMetrics = Mapping[tuple[str, str], Mapping[str, float]]
"""By group and tags (a topic, a node, or `.`): each metric's value."""


@dataclass
class History:
    """Events are ("record", ms, [value]) and ("measure", ms, [average, maximum, rate, rate of values, ratio, sum of all])."""

    windows: int
    window_ms: int
    events: list[tuple[str, int, list[float]]] = field(default_factory=list)


def run_java(*arguments: str) -> str:
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG4J}"]
    command = [java(), *options, "-cp", str(jars() / "*"), str(GOLDEN / "GoldenMetrics.java"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def histories(text: str) -> list[History]:
    found: list[History] = []
    for line in text.splitlines():
        kind, first, *rest = line.split()
        if kind == "history":
            found.append(History(int(first), int(rest[0])))
        else:
            found[-1].events.append((kind, int(first), [float(word) for word in rest]))
    return found


def names(metrics: JavaMetrics) -> set[tuple[str, str]]:
    """Each metric's group and name."""
    return {(group, name) for (group, _), values in metrics.items() for name in values}


def golden_names() -> set[tuple[str, str]]:
    """Those of Java's producer once it has sent something."""
    return {(group, name) for group, name in map(str.split, NAMES.read_text().splitlines())}


def java_producer(bootstrap_servers: str, topic: str, records: int, **options: object) -> JavaMetrics:
    """The metrics of Java's producer after it sent so many records of 100 bytes with keys of 10 to partition 0."""
    settings = [f"{name.replace('_', '.')}={value}" for name, value in options.items()]
    metrics: dict[tuple[str, str], dict[str, float]] = {}
    for line in run_java("producer", bootstrap_servers, topic, str(records), *settings).splitlines():
        group, tags, name, value = line.split(" ")
        if group.startswith("producer-"):
            metrics.setdefault((group, tags), {})[name] = float(value)
    return metrics
