"""Spark Connect: every way to write, what `publish` reports, and the texts of errors."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyspark
import pytest

from spark_kafka_sink.broker import EmbeddedBroker
from tests.kafka.witness import read_topic
from tests.spark_connect.connect_program import ROWS
from tests.spark_connect.server import ConnectServer, environment

pytestmark = [pytest.mark.spark, pytest.mark.smoke, pytest.mark.timeout(390)]

# Before Spark 4.2 the error of a stream has Java's stack trace, whatever the server's settings are.
MOST_LINES = 50 if pyspark.__version__.startswith(("4.0", "4.1")) else 20

Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def steps(broker: EmbeddedBroker, server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """What the program printed, by step."""
    folder = tmp_path_factory.mktemp("client")
    command = [sys.executable, "-m", "tests.spark_connect.connect_program", server.address, broker.bootstrap_servers, str(folder)]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=380, check=False)
    assert ran.returncode == 0, ran.stderr
    return {said["step"]: said for said in map(json.loads, ran.stdout.splitlines())}


@pytest.mark.parametrize(
    "step", ["save", "save once", "stream", "stream once", "publish", "publish once", "foreach_batch", "partition_writer"]
)
def test_each_way_of_writing_delivers_each_row_once(step: str, steps: Steps, broker: EmbeddedBroker) -> None:
    assert "error" not in steps[step]
    topic = step.replace(" ", "-").replace("_", "-")
    found = read_topic(broker.bootstrap_servers, topic, isolation_level="read_committed")
    assert sorted(int(each.value or b"") for each in found) == list(range(ROWS))


@pytest.mark.parametrize("step", ["publish", "publish once"])
def test_publish_returns_the_whole_report(step: str, steps: Steps) -> None:
    assert steps[step]["result"] == {"records": ROWS, "tasks": [10, 10], "last offsets": ROWS}


def test_the_bar_of_publish_shows_the_tasks_that_the_server_tells(steps: Steps) -> None:
    shown = steps["bar"]["result"]["shown"]
    assert "0 of 2 tasks" in shown
    assert "2 of 2 tasks" in shown
    assert "100%" in shown
    assert "rows" not in shown
    assert steps["bar"]["result"]["handlers left"] == 0


def test_check_works(steps: Steps) -> None:
    assert steps["check"]["result"] is True


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ("bad column", "[SCHEMA] column value: is bigint"),
        ("bad option", "[OPTION] unknown option kafka.ackss; did you mean kafka.acks?"),
        ("bad row", "[RECORD] topic bad: row 0 of 10: column partition is 99"),
        ("bad row of a stream", "[RECORD_TOO_LARGE] topic bad-stream: row 0 of 10"),
        ("once in foreach_batch", "[USAGE] delivery.guarantee=exactly-once"),
        ("metrics", "[USAGE]"),
    ],
)
def test_an_error_reaches_the_client_with_its_code_in_few_lines(step: str, code: str, steps: Steps) -> None:
    said = steps[step]["error"]
    assert code in said
    assert len(said.splitlines()) <= MOST_LINES


def test_publish_raises_the_sinks_own_error(steps: Steps) -> None:
    said = steps["bad row of publish"]["error"]
    assert said.startswith("spark_kafka_sink.errors.RecordError: [RECORD] topic bad: row 0 of 10: column partition is 99")
    assert len(said.splitlines()) <= 7
