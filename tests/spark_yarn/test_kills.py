"""An exactly-once stream on YARN: an executor's container is killed, then the application master with the driver in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.faults.exactly_once.numbered_rows import BATCH_SIZE, NumberedRows
from tests.faults.exactly_once.open_transactions import assert_nothing_open, ongoing
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import ProxiedKafka
from tests.kafka.witness import read_topic
from tests.spark_cluster import streams_program
from tests.spark_cluster.application import Application
from tests.spark_yarn.submitter import Submitter
from tests.spark_yarn.yarn import Container, YarnCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

QUERY: Final = "exactly-once"
ROWS_PER_TASK = 300
ROWS_PER_SECOND = 150  # a task writes for a second after its first rows, so that it is killed in the middle
STEP_DEADLINE_S = 600.0
END_DEADLINE_S = 600.0
SETTINGS: Final = {"spark.yarn.maxAppAttempts": "2", "spark.task.maxFailures": "8"}


class Outcome(NamedTuple):
    """ids: the id of each query by its name, as its last driver says."""

    brokers: Brokers
    rows: NumberedRows
    topic: str
    ids: dict[str, str]


class Story:
    """Gives rows to the stream, two micro-batches ahead of it. One thread."""

    def __init__(self, folder: Path, yarn: YarnCluster, brokers: Brokers) -> None:
        self.rows = NumberedRows(folder / "rows", 0, rows=ROWS_PER_TASK).write()
        self._folder = folder
        self._yarn = yarn
        self._brokers = brokers
        self._written = 0

    def plan(self, topic: str) -> dict[str, Any]:
        sink = {
            "kafka.bootstrap.servers": self._brokers.bootstrap_servers,
            "kafka.batch.size": str(BATCH_SIZE),
            "max.records.per.second": str(ROWS_PER_SECOND),
            "topic": topic,
            "delivery.guarantee": "exactly-once",
        }
        return {
            "rows": str(self.rows.folder),
            "files": self.rows.tasks,
            "keys": self.rows.keys,
            "streams": {QUERY: sink},
            "checkpoints": str(self._folder / "checkpoints"),
            "stop": str(self._folder / "stop"),
            "result": str(self._folder / "result.json"),
        }

    def kill(self, application: Application, wanted: Callable[[Container], bool], what: str) -> Container:
        """SIGKILL to the Java of such a container while tasks have begun transactions that nobody has ended."""

        def found() -> list[Container]:
            containers = [each for each in self._yarn.containers() if wanted(each)]
            return containers if containers and self._writes() and ongoing(self._brokers, "") else []

        victim = self.feed(application, found, f"{what} to kill")[0]
        victim.java.kill()
        return victim

    def feed(self, application: Application, found: Callable[[], list[Container]], what: str) -> list[Container]:
        deadline = time.monotonic() + STEP_DEADLINE_S
        while not (answer := found()):
            application.check()
            assert time.monotonic() < deadline, application.explain(f"{what}: not within {STEP_DEADLINE_S:g} s")
            if self._written < self._committed() + 2:
                self.rows.write_batch(self._written)
                self._written += 1
            time.sleep(0.2)
        return answer

    def end(self, application: Application) -> Any:
        (self._folder / "stop").touch()
        application.join(END_DEADLINE_S)
        self.rows = replace(self.rows, batches=self._written)
        return json.loads((self._folder / "result.json").read_text())

    def _committed(self) -> int:
        commits = self._folder / "checkpoints" / QUERY / "commits"
        return sum(not each.name.startswith(".") for each in commits.iterdir()) if commits.exists() else 0

    def _writes(self) -> bool:
        """Whether it has come so far that a stream that begins again could lose or repeat something."""
        return self._committed() > 0


@pytest.fixture(scope="module")
def outcome(submitter: Submitter, broker: ProxiedKafka) -> Outcome:
    topic = broker.cluster.create_topic("yarn-kills", 4)
    yarn = submitter.yarn
    story = Story(submitter.folder / "killed", yarn, broker.cluster)
    with submitter.submit("kills", "cluster", streams_program, story.plan(topic), SETTINGS) as spark:
        story.kill(spark, lambda each: not each.is_master and len(each.python) > 1, "an executor's container with a task")
        known = {each.id for each in yarn.containers()}
        story.feed(
            spark,
            lambda: [each for each in yarn.containers() if each.id not in known and each.attempt == 1 and len(each.python) > 1],
            "a container in its place, with a task",
        )
        story.kill(spark, lambda each: each.is_master and each.attempt == 1, "the application master")
        story.feed(
            spark,
            lambda: [each for each in yarn.containers() if not each.is_master and each.attempt == 2 and len(each.python) > 1],
            "an executor with a task in the second attempt",
        )
        result = story.end(spark)
    return Outcome(broker.cluster, story.rows, topic, result["ids"])


@pytest.mark.fault("spark", "containers of YARN killed: an executor's and the application master's")
def test_each_row_is_there_once_and_no_transaction_is_left(outcome: Outcome) -> None:
    outcome.rows.check(read_topic(outcome.brokers.direct_servers, outcome.topic, isolation_level="read_committed"))
    assert_nothing_open(outcome.brokers, outcome.ids[QUERY], outcome.topic)
