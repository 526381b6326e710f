"""The demo, with few rows, on both brokers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from jobs.demo import _judged
from jobs.outcome import ExitCode
from spark_kafka_sink import DeliveryReport
from spark_kafka_sink.verify.comparison import COLUMNS, Comparison
from tests.jobs.job_process import CHECKOUT, environment
from tests.kafka.kafka import Kafka


def demo(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKOUT / "jobs" / "demo.py"), "--rows", "3000"],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def ended_well(ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Delivery report: 3,000 records" in ended.stdout
    assert "3,000 records expected, 3,000 found: 0 missing, 0 duplicated, 0 unexpected" in ended.stdout
    assert "All 3,000 records are in the topic as they were sent" in ended.stdout


@pytest.mark.spark
@pytest.mark.whole(
    "80 s, a million rows; test_demo_events.py has its rows, and tests/jobs/test_export_and_verify.py compares rows with a topic"
)
def test_it_needs_no_kafka() -> None:
    ended = demo(KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")

    ended_well(ended)
    assert "Starting the embedded broker" in ended.stdout
    assert "download" not in ended.stdout


@pytest.mark.whole("as long as the test before it")
@pytest.mark.spark
def test_on_a_kafka_that_is_named_it_ends_well_and_leaves_no_topic(kafka: Kafka) -> None:
    ended_well(demo(KAFKA_BOOTSTRAP_SERVERS=kafka.direct_servers, BROKER="kafka"))

    assert not [topic for topic in kafka.metadata().topics if topic.startswith("demo-events")]


def test_another_broker_is_refused() -> None:
    ended = demo(BROKER="redpanda")

    assert ended.returncode == 2
    assert "BROKER=redpanda: must be one of embedded, kafka" in ended.stderr


SAME = Comparison(COLUMNS, {}, expected=9, found=9, missing=0, duplicated=0, unexpected=0, removed=0, examples=())


@pytest.mark.parametrize(
    ("compared", "reported", "code"),
    [
        (SAME, 9, ExitCode.OK),
        (replace(SAME, found=8, missing=1), 9, ExitCode.DIFFERENCE),
        (replace(SAME, found=10, duplicated=1), 9, ExitCode.DIFFERENCE),
        (replace(SAME, missing=1, unexpected=1), 9, ExitCode.DIFFERENCE),
        (replace(SAME, left_out={"timestamp": "of a reason"}), 9, ExitCode.DIFFERENCE),
        (replace(SAME, expected=8, found=8), 8, ExitCode.DIFFERENCE),
        (SAME, 8, ExitCode.DIFFERENCE),
        (SAME, None, ExitCode.DIFFERENCE),
    ],
)
def test_any_difference_ends_it_with_an_exit_code_that_is_not_zero(
    compared: Comparison, reported: int | None, code: ExitCode
) -> None:
    report = None if reported is None else DeliveryReport(records=reported)

    assert _judged(compared, report, 9) is code
