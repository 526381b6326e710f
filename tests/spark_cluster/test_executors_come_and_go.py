"""Streams on a standalone cluster: executors are killed, a worker is lost and another one comes, and idle executors end.

The package comes from an archive only, each task has a Python of its own, and two streams write the same rows.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.faults.exactly_once.driver import java_options
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.faults.exactly_once.open_transactions import assert_nothing_open
from tests.faults.exactly_once.standalone import ADDRESS, StandaloneCluster
from tests.kafka.brokers import Brokers
from tests.kafka.ports import free_ports
from tests.kafka.witness import Witnessed, read_topic
from tests.spark_cluster import streams_program
from tests.spark_cluster.application import Application, Executor, Recipe
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.chaos,
    pytest.mark.whole("a Spark cluster and a packed environment of its own; tests/faults/exactly_once kills executors, too"),
]

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
PARTITIONS = 4
WORKERS = 3
ROWS_PER_TASK = 300
ROWS_PER_SECOND = 150  # a task writes for a second after its first ones, so that its executor dies in the middle
STEP_DEADLINE_S = 150.0  # an executor unpacks 124 MB before its first task, and the machine may be busy
END_DEADLINE_S = 240.0
ORPHAN_DEADLINE_S = 60.0

SETTINGS = {
    "spark.driver.host": ADDRESS,
    "spark.driver.bindAddress": ADDRESS,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(WORKERS),
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.python.worker.reuse": "false",
    "spark.task.maxFailures": "8",
    "spark.sql.files.openCostInBytes": str(128 << 20),  # a task for each file
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True)
class Outcome:
    """What is left when the program has ended.

    rows: those that were given to both streams. topics: by the query's name. result: what the program says.
    left_over: Python processes that were still there long after their executor was killed.
    """

    brokers: Brokers
    cluster_folder: Path
    rows: NumberedRows
    topics: dict[str, str]
    result: Any
    left_over: list[psutil.Process]

    def read(self, name: str, isolation_level: str = "read_committed") -> list[Witnessed]:
        return read_topic(self.brokers.direct_servers, self.topics[name], isolation_level=isolation_level)


class Story:
    """Feeds the streams while a test's fixture kills and adds. One thread."""

    def __init__(self, folder: Path, cluster: StandaloneCluster, rows: NumberedRows) -> None:
        self.folder = folder
        self.rows = rows
        self._cluster = cluster
        self._families: list[psutil.Process] = []
        self._written = 0

    def begin(self, recipe: Recipe, topics: dict[str, str], brokers: Brokers) -> Application:
        sink = {
            "kafka.bootstrap.servers": brokers.bootstrap_servers,
            "kafka.batch.size": "512",  # so that a task sends many requests
            "max.records.per.second": str(ROWS_PER_SECOND),
        }
        plan = {
            "rows": str(self.rows.folder),
            "files": self.rows.tasks,
            "keys": self.rows.keys,
            "streams": {name: {**sink, "topic": topic, "delivery.guarantee": name} for name, topic in topics.items()},
            "checkpoints": str(self.folder / "checkpoints"),
            "stop": str(self.folder / "stop"),
            "result": str(self.folder / "result.json"),
        }
        (self.folder / "plan.json").write_text(json.dumps(plan))
        program = shutil.copy(streams_program.__file__, recipe.folder / "job.py")
        (port,) = free_ports(1)
        settings = {**SETTINGS, **java_options(), "spark.ui.port": str(port)}
        log = self.folder / "driver.log"
        arguments = [Path(program).name, str(self.folder / "plan.json")]
        return Application(recipe.submit(self._cluster.master, arguments, log, settings), log, port)

    def feed(self, application: Application, reached: Callable[[dict[str, Executor]], bool], what: str) -> None:
        """Keeps both streams busy until Spark's executors are as they should be."""
        deadline = time.monotonic() + STEP_DEADLINE_S
        while not reached(executors := application.executors()):
            assert time.monotonic() < deadline, application.explain(f"{what}: not within {STEP_DEADLINE_S:g} s; {executors}")
            if self._written < self._committed() + 2:
                self.rows.write_batch(self._written)
                self._written += 1
            time.sleep(0.2)

    def rest(self, application: Application, reached: Callable[[dict[str, Executor]], bool], what: str) -> None:
        """Gives no rows until Spark's executors are as they should be."""
        try:
            wait_until(lambda: reached(application.executors()), what, STEP_DEADLINE_S)
        except TimeoutError as error:
            raise AssertionError(application.explain(str(error))) from None

    def _committed(self) -> int:
        """How many micro-batches both streams have committed."""
        folders = [self.folder / "checkpoints" / name / "commits" for name in (AT_LEAST_ONCE, EXACTLY_ONCE)]
        return min(
            sum(not each.name.startswith(".") for each in folder.iterdir()) if folder.exists() else 0 for folder in folders
        )

    def kill_executor(self, application: Application) -> str:
        """SIGKILL to the Java of an executor that has a task. Its Python is left alone."""
        name, process = self._busy(application)
        self._families += process.children(recursive=True)
        process.kill()
        return name

    def kill_worker(self, application: Application) -> str:
        """SIGKILL to a worker and to its executor, which has a task."""
        name, process = self._busy(application)
        self._families += process.children(recursive=True)
        self._cluster.kill_worker(self._cluster.worker_of(process))
        return name

    def _busy(self, application: Application) -> tuple[str, psutil.Process]:
        found: list[tuple[str, psutil.Process]] = []

        def has_task(executors: dict[str, Executor]) -> bool:
            running = self._cluster.executors()
            writes = [each.id for each in executors.values() if each.is_active and each.active_tasks and each.id in running]
            # Its daemon has forked a worker: the task is past Java's part.
            found[:] = [(name, running[name]) for name in writes if len(running[name].children(recursive=True)) > 1]
            return bool(found)

        self.feed(application, has_task, "an executor with a task")
        return found[0]

    def end(self, application: Application) -> Any:
        """Gives the last rows, and has the program end when both streams have committed them."""
        for _ in range(2):
            self.rows.write_batch(self._written)
            self._written += 1
        (self.folder / "stop").touch()
        application.join(END_DEADLINE_S)
        self.rows = replace(self.rows, batches=self._written)
        return json.loads((self.folder / "result.json").read_text())

    def left_over(self) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(self._families, ORPHAN_DEADLINE_S)
        return list(alive)


@pytest.fixture(scope="module")
def outcome(recipe: Recipe, _three_real_brokers: Brokers, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    brokers, folder, cluster_folder = _three_real_brokers, tmp_path_factory.mktemp("streams"), tmp_path_factory.mktemp("cluster")
    topics = {name: brokers.create_topic(f"{folder.name}-{name}", PARTITIONS) for name in (AT_LEAST_ONCE, EXACTLY_ONCE)}
    rows = NumberedRows(folder / "rows", 0, rows=ROWS_PER_TASK).write()
    with ExitStack() as stack:
        cluster = stack.enter_context(StandaloneCluster(cluster_folder, [ADDRESS] * WORKERS, sees_checkout=False))
        story = Story(folder, cluster, rows)
        spark = stack.enter_context(story.begin(recipe, topics, brokers))
        story.feed(spark, lambda found: _working(found) == WORKERS, "an executor on each worker that has done a task")
        for _ in range(2):
            _replace_killed(story, spark, story.kill_executor(spark))
        lost = story.kill_worker(spark)
        story.feed(spark, lambda found: not found[lost].is_active, "the loss of a worker's executor")
        _wait_for_newcomer(story, spark, cluster, cluster.add_worker())
        story.rest(spark, lambda found: sum(each.is_active for each in found.values()) == 1, "the end of idle executors")
        story.feed(spark, lambda found: _working(found) == WORKERS, "as many executors as before")
        result, left_over = story.end(spark), story.left_over()
    return Outcome(brokers, cluster_folder, story.rows, topics, result, left_over)


def _working(executors: dict[str, Executor]) -> int:
    return sum(each.is_active and each.completed_tasks > 0 for each in executors.values())


def _replace_killed(story: Story, spark: Application, killed: str) -> None:
    known = set(spark.executors())
    story.feed(spark, lambda found: not found[killed].is_active, f"the loss of executor {killed}")
    story.feed(spark, lambda found: bool(found.keys() - known) and _working(found) == WORKERS, "an executor in its place")


def _wait_for_newcomer(story: Story, spark: Application, cluster: StandaloneCluster, worker: int) -> None:
    """Waits until an executor of the new worker has done a task."""

    def has_worked(found: dict[str, Executor]) -> bool:
        mine = [name for name, process in cluster.executors().items() if cluster.worker_of(process) == worker]
        return any(name in found and found[name].completed_tasks > 0 for name in mine)

    story.feed(spark, has_worked, "a task of the worker that came later")


def test_at_least_once_loses_no_row(outcome: Outcome) -> None:
    found = {int(record.value or b"-1") for record in outcome.read(AT_LEAST_ONCE)}
    assert found == set(range(outcome.rows.total))


@pytest.mark.fault("spark", "executors and workers of a cluster lost and added")
def test_exactly_once_has_each_row_once_and_leaves_no_transaction(outcome: Outcome) -> None:
    outcome.rows.check(outcome.read(EXACTLY_ONCE))
    assert_nothing_open(outcome.brokers, outcome.result["ids"][EXACTLY_ONCE], outcome.topics[EXACTLY_ONCE])


def test_killed_tasks_had_written(outcome: Outcome) -> None:
    assert len(outcome.read(EXACTLY_ONCE, "read_uncommitted")) > outcome.rows.total


def test_counts_are_those_of_what_was_committed(outcome: Outcome) -> None:
    total = outcome.rows.total
    assert outcome.result["committed"] == dict.fromkeys(outcome.topics.values(), total)
    assert all(outcome.result["live"][topic] >= total for topic in outcome.topics.values())


def test_tasks_find_the_package_in_the_archive_and_nowhere_else(outcome: Outcome) -> None:
    for place in outcome.result["places"]:
        folder = Path(place["folder"])
        assert folder.is_relative_to(outcome.cluster_folder)
        environment = (folder / "environment").resolve()
        for module in place["modules"]:
            assert Path(module).resolve().is_relative_to(environment), place
        found = [entry for entry in place["path"] if (folder / entry / "spark_kafka_sink").exists()]
        assert [Path(entry).is_relative_to(folder / "environment") for entry in found] == [True], found


def test_each_task_has_a_python_of_its_own_which_ends_with_its_executor(outcome: Outcome) -> None:
    pids = [place["pid"] for place in outcome.result["places"]]
    assert len(set(pids)) == len(pids) == streams_program.PROBES
    assert not outcome.left_over
