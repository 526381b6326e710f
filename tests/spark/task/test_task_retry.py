"""A task raises in the middle of its rows, and Spark runs it again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from tests.exactly_once.opened import client_of, soon
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import options, read_values
from tests.spark.retry_program import ROWS
from tests.spark.session import ROOT


@pytest.mark.fault("spark", "a task raises mid-write and is retried")
@pytest.mark.whole("a Spark of its own; test_kills.py kills workers in the middle of their rows")
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_no_row_is_lost_and_under_exactly_once_each_is_there_once(kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> None:
    repeated, once = new_topic(2), new_topic(2)
    written = [
        options(kafka, topic=repeated, kafka__linger__ms="0"),
        options(kafka, topic=once, delivery__guarantee="exactly-once", transactional__id__prefix=once),
    ]
    command = [sys.executable, "-m", "tests.spark.retry_program", str(tmp_path), *map(json.dumps, written)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.stdout.split("\n")[:2] == ["raised", "raised"], ran.stderr
    assert ran.returncode == 0

    assert sorted(set(read_values(kafka, repeated))) == list(range(ROWS))
    committed = read_topic(kafka.bootstrap_servers, once, isolation_level="read_committed")
    assert sorted(int(each.value or b"") for each in committed) == list(range(ROWS))
    with client_of(kafka) as client:
        assert TransactionClient(client).list_open(once, soon()) == []
