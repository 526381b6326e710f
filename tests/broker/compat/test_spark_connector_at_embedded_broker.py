"""Spark's own Kafka source and sink, which are Java's clients, read and write an embedded broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.broker.compat.conftest import NewTopic
from tests.broker.compat.spark_connector import ROWS
from tests.jobs.job_process import CONNECTOR_POM, environment, spark_arguments
from tests.kafka.jars import jars


@pytest.mark.whole("a Spark of its own; Java's clients are in the test of Kafka's tools")
@pytest.mark.spark
def test_batches(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    connector = ",".join(map(str, sorted(jars(CONNECTOR_POM).glob("*.jar"))))
    submit = " ".join([*spark_arguments(), "--jars", connector, "pyspark-shell"])
    done = subprocess.run(
        [sys.executable, "-m", "tests.broker.compat.spark_connector", servers, topic],
        env=environment() | {"PYSPARK_SUBMIT_ARGS": submit},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    whole, beginning = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert whole == [[str(index), f"value {index}", index % 3, index // 3] for index in range(ROWS)]
    assert beginning == whole[:30]
