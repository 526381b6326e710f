"""Memory of a container of YARN while Kafka is slower than Spark, so that tasks fill `kafka.buffer.memory`.

Java touches its whole heap at once, as it does in a job that lives for long: only what the overhead is for decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from docs.pages import FOLDER
from tests.docs.snippets import python_blocks
from tests.kafka.fixtures import ProxiedKafka
from tests.kafka.witness import read_topic
from tests.spark_yarn import large_rows
from tests.spark_yarn.submitter import SETTINGS, Submitter

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1200)]

CORES: Final = 2
MIB: Final = 1 << 20
DEADLINE_S = 900.0
OVERHEAD: Final = "spark.executor.memoryOverhead"
OF_ONE_EXECUTOR: Final = {
    "spark.executor.cores": str(CORES),
    "spark.executor.instances": "1",
    "spark.executor.extraJavaOptions": f"{SETTINGS['spark.executor.extraJavaOptions']} -Xms512m -XX:+AlwaysPreTouch",
    "spark.task.maxFailures": "1",
}
KILLED: Final = "Container killed by YARN for exceeding physical memory limits"


@pytest.fixture
def slow_broker(broker: ProxiedKafka) -> Iterator[ProxiedKafka]:
    """Takes 1 MiB/s from each worker, which a busy machine exceeds, too."""
    broker.proxy.rate_limit(MIB, "to_server")
    yield broker
    broker.proxy.heal()


def overhead_of_docs() -> str:
    """What docs/performance.md says for an executor with CORES."""
    (source,) = (each.source for each in python_blocks("performance.md") if OVERHEAD in each.source)
    said: list[str] = []
    exec(re.sub(r"cores = \d+", f"cores = {CORES}", source), {"print": said.append})
    return said[0].removeprefix(f"{OVERHEAD}=")


def plan(broker: ProxiedKafka, topic: str, megabytes: int, **options: str) -> dict[str, object]:
    """megabytes: of the rows of each task."""
    servers = {"kafka.bootstrap.servers": broker.cluster.bootstrap_servers, "topic": broker.cluster.create_topic(topic, 4)}
    return {
        "rows": CORES * megabytes * 1000,
        "tasks": CORES,
        "size": 1000,
        "sink": {**servers, "kafka.compression.type": "none", "kafka.delivery.timeout.ms": "1800000", **options},
    }


def test_the_overhead_of_the_docs_is_enough(submitter: Submitter, slow_broker: ProxiedKafka) -> None:
    given = plan(slow_broker, "yarn-enough-memory", 60)
    settings = {**OF_ONE_EXECUTOR, OVERHEAD: overhead_of_docs()}
    with submitter.submit("enough-memory", "client", large_rows, given, settings) as spark:
        spark.join(DEADLINE_S)
    found = read_topic(slow_broker.cluster.direct_servers, "yarn-enough-memory")
    assert sorted(int(record.key or b"-1") for record in found) == [*range(CORES * 60 * 1000)]


def test_a_larger_buffer_without_more_overhead_is_killed_as_the_docs_say(submitter: Submitter, slow_broker: ProxiedKafka) -> None:
    given = plan(slow_broker, "yarn-too-little-memory", 800, **{"kafka.buffer.memory": str(700 * MIB)})
    settings = {**OF_ONE_EXECUTOR, OVERHEAD: overhead_of_docs()}
    with submitter.submit("too-little-memory", "client", large_rows, given, settings) as spark:
        said = spark.join_failed(DEADLINE_S)
    assert KILLED in said
    assert f"### {KILLED}" in (FOLDER / "troubleshooting.md").read_text(encoding="utf-8")
