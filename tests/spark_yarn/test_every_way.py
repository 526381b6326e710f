"""Batch jobs, streams and publish() on YARN, in client and in cluster mode, with the package from an archive only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.kafka.fixtures import ProxiedKafka
from tests.kafka.witness import read_topic
from tests.spark_yarn import every_way
from tests.spark_yarn.submitter import Mode, Submitter

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MODES: Final[tuple[Mode, ...]] = ("client", "cluster")
WAYS: Final = tuple(
    f"{way} {guarantee}" for way in ("batch", "publish", "stream") for guarantee in ("at-least-once", "exactly-once")
)
DEADLINE_S = 900.0


@dataclass(frozen=True)
class Outcome:
    """topics: by way and guarantee. result: what the program says. folder: YARN's."""

    mode: Mode
    servers: str
    rows: NumberedRows
    topics: dict[str, str]
    result: Any
    folder: Path


@pytest.fixture(scope="module", params=MODES)
def outcome(request: pytest.FixtureRequest, submitter: Submitter, broker: ProxiedKafka) -> Outcome:
    mode: Mode = request.param
    folder = submitter.folder / f"every-way-{mode}"
    rows = NumberedRows(folder / "rows", batches=2).write()
    topics = {way: broker.cluster.create_topic(f"yarn-{mode}-{way.replace(' ', '-')}", 4) for way in WAYS}
    plan = {
        "rows": str(rows.folder),
        "keys": rows.keys,
        "sink": {"kafka.bootstrap.servers": broker.cluster.bootstrap_servers},
        "topics": topics,
        "checkpoints": str(folder / "checkpoints"),
        "result": str(folder / "result.json"),
    }
    with submitter.submit(f"every-way-{mode}", mode, every_way, plan) as spark:
        spark.join(DEADLINE_S)
    result = json.loads((folder / "result.json").read_text())
    return Outcome(mode, broker.cluster.bootstrap_servers, rows, topics, result, submitter.yarn.folder)


@pytest.mark.parametrize("way", WAYS)
def test_each_row_arrives_once(outcome: Outcome, way: str) -> None:
    found = read_topic(outcome.servers, outcome.topics[way], isolation_level="read_committed")
    arrived = sorted((int(record.value or b"-1"), int(record.key or b"-1")) for record in found)
    assert arrived == [(row, row % outcome.rows.keys) for row in range(outcome.rows.total)]


def test_deliveries_are_counted(outcome: Outcome) -> None:
    assert outcome.result["committed"] == dict.fromkeys(outcome.topics.values(), outcome.rows.total)


def test_tasks_find_the_package_in_the_archive(outcome: Outcome) -> None:
    assert Path(outcome.result["driver"]).is_relative_to(outcome.folder) == (outcome.mode == "cluster")
    for place in outcome.result["places"]:
        assert Path(place["folder"]).is_relative_to(outcome.folder)
        for file in (place["module"], place["python"]):
            assert Path(file).is_relative_to(Path(place["folder"], "environment")), place
