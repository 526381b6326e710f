"""Interrupts through Spark Connect: by Ctrl+C, and by another thread of the program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from tests.exactly_once.opened import new_id
from tests.kafka.witness import read_topic
from tests.spark_connect.server import ConnectServer, environment
from tests.waiting import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(390),
    pytest.mark.whole("six jobs; tests/spark/driver/test_interrupts.py has what is ours of an interrupt"),
]

START_S = 120.0
STEPS = {
    "ctrl-c": "publish at-least-once",
    "ctrl-c-once": "publish exactly-once",
    "ctrl-c-save-once": "save exactly-once",
    "all": "publish at-least-once",
    "all-once": "publish exactly-once",
    "all-save-once": "save exactly-once",
}


@pytest.fixture
def topics(broker: EmbeddedBroker) -> dict[str, str]:
    """A new topic of each step."""
    named = {step: new_id(step) for step in STEPS}
    for topic in named.values():
        broker.create_topic(topic)
    return named


@pytest.fixture
def client(topics: dict[str, str], broker: EmbeddedBroker, server: ConnectServer) -> Iterator[subprocess.Popen[str]]:
    steps = [f"{STEPS[step]} {topic}" for step, topic in topics.items()]
    command = [sys.executable, "-m", "tests.spark_connect.interrupted_program", server.address, broker.bootstrap_servers, *steps]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True) as started:
        yield started
        started.kill()


def values(broker: EmbeddedBroker, topic: str, isolation_level: str) -> list[bytes | None]:
    return [each.value for each in read_topic(broker.bootstrap_servers, topic, isolation_level=isolation_level)]


def test_an_interrupt_cancels_the_job_which_leaves_nothing_visible_and_nothing_open_under_exactly_once(
    client: subprocess.Popen[str], topics: dict[str, str], broker: EmbeddedBroker
) -> None:
    assert client.stdin is not None
    assert client.stdout is not None
    ends: dict[str, dict[str, Any]] = {}
    for step, topic in topics.items():
        until(partial(values, broker, topic, "read_uncommitted"), bool, f"rows of {step}", START_S)
        if step.startswith("ctrl-c"):
            client.send_signal(signal.SIGINT)
        else:
            client.stdin.write("\n")
            client.stdin.flush()
        ends[step] = json.loads(client.stdout.readline())
    assert client.wait(START_S) == 0

    for step, end in ends.items():
        assert ("KeyboardInterrupt" in end["error"]) is step.startswith("ctrl-c"), end
        assert step.startswith("ctrl-c") or "OPERATION_CANCELED" in end["text"], end
    (note,) = ends["ctrl-c"]["notes"]
    assert note.startswith("It is not known how many rows Kafka has acknowledged")
    (note,) = ends["ctrl-c-once"]["notes"]
    assert "was aborted: none of its rows are visible, and none of its transactions are open" in note
    with sks.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for topic in topics.values():
            producer.send(topic, b"later")
    for step, topic in topics.items():
        if step.endswith("once"):  # a transaction that is open would hide the later row
            visible = until(partial(values, broker, topic, "read_committed"), bool, f"the later row of {step}")
            assert visible == [b"later"]
