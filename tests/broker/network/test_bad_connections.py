"""Connections that send anything but requests: each is closed, few are logged, and those who are connected are served."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.network.connection_quotas import BadConnections
from tests.broker.network.client import Client

pytestmark = pytest.mark.slow

FLOOD = """
import socket, sys

port, connections = int(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for number in range(connections):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as garbage:
        garbage.sendall(b"\\0\\0\\0\\x0agarbage...")
        try:
            garbage.recv(1)
        except ConnectionResetError:
            pass
"""


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bad(clock: Clock) -> BadConnections:
    return BadConnections(clock)


def test_the_first_have_a_line_each_and_the_others_one_line(
    bad: BadConnections, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        bad.report(f"connection {number}")
        bad.summarize()
    assert caplog.messages == [f"connection {number}" for number in range(5)]
    clock.now_ms += 10_000
    bad.summarize()
    assert caplog.messages[5:] == [
        "closed 995 more connections because of what they sent, within 10 s; the last: connection 999",
    ]
    bad.report("another")
    assert caplog.messages[6:] == ["another"]


def test_what_was_counted_is_told_when_the_next_one_comes(
    bad: BadConnections, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(7):
        bad.report(f"connection {number}")
    clock.now_ms += 60_000
    bad.report("another")
    assert [message.split(" more")[0] for message in caplog.messages[5:]] == ["2", "another"]


def test_what_was_counted_is_told_at_the_end(bad: BadConnections, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(6):
        bad.report(f"connection {number}")
    bad.summarize(at_once=True)
    bad.summarize(at_once=True)
    assert [message.split(" more")[0] for message in caplog.messages[5:]] == ["1"]


def test_few_need_no_summary(bad: BadConnections, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    bad.report("connection")
    clock.now_ms += 10_000
    bad.summarize(at_once=True)
    assert caplog.messages == ["connection"]


def test_new_connections_wait_while_there_are_many_bad_ones(bad: BadConnections, clock: Clock) -> None:
    for _ in range(99):
        bad.report("connection")
    assert bad.pause_s() == 0
    bad.report("connection")
    assert bad.pause_s() > 0
    clock.now_ms += 1_000
    assert bad.pause_s() > 0
    clock.now_ms += 1_000
    assert bad.pause_s() == 0


def test_a_flood_is_logged_in_a_few_lines_and_does_not_take_the_broker_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Its rate is bounded from above, which holds on a machine that is busy, too: without a bound it is some 3,000 a second."""
    floods, connections = 4, 1000
    caplog.set_level(logging.INFO)
    with EmbeddedBroker() as broker, Client(broker.server(1).port) as good:
        command = [sys.executable, "-c", FLOOD, str(broker.server(1).port), str(connections)]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(floods)]
        try:
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == b"ready\n"
            began = time.monotonic()
            answered = 0
            while any(child.poll() is None for child in children):
                assert good.api_versions().error_code == 0
                answered += 1
            took_s = time.monotonic() - began
        finally:
            for child in children:
                child.kill()
                child.communicate()
        snapshot = broker.server(1).snapshot()
        assert snapshot is not None
        assert snapshot.bad_connections == floods * connections
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 6 <= len(lines) <= 6 * (1 + took_s / 10)
    # The first second's are many before they are known to be.
    assert floods * connections <= 600 + 1000 * (took_s + 1)
    assert answered >= 100
