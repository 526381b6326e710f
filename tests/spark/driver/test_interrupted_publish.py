"""Ctrl+C during `publish`: in this process, and in a real terminal, with a script that has Spark of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
import spark_kafka_sink.spark.driver.publish as publish_module
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.spark.write_events import WriteEvent, WriteFailed
from tests.spark.frames import numbers
from tests.spark.kernel import SETUP
from tests.spark.session import ROOT

START_S = 150.0
END_S = 40.0
CTRL_C = b"\x03"

PROGRAM = f"""{SETUP}
df = spark.range(0, 1_000_000, 1, 2).selectExpr("string(id) AS key", "string(id) AS value")
sks.publish(df, topic="events", bootstrap_servers=broker.bootstrap_servers, options={{"max.records.per.second": "1000"}})
"""


class Script:
    """A Python program that a shell has started in a terminal: a session with a terminal of its own."""

    def __init__(self, program: str) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        # setsid makes the terminal that of the session, so that Ctrl+C reaches its processes as in a shell.
        start = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{program}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", start],
            env={**os.environ, "PYTHONPATH": path},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self.text = ""

    def read_until(self, pattern: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not re.search(pattern, self.text):
            ready, _, _ = select.select([self._terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{pattern!r} is not in the last text: {self.text[-2000:]!r}"
            try:
                self.text += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                pytest.fail(f"{pattern!r} is not in the last text: {self.text[-4000:]!r}")

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def started(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def end(self) -> None:
        for process in [self.process, *(self.started() if self.process.poll() is None else [])]:
            process.kill()
        self.process.wait(END_S)
        os.close(self._terminal)


@pytest.fixture
def script() -> Iterator[Script]:
    started = Script(PROGRAM)
    yield started
    started.end()


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.whole("PySpark's own handler cancels the job here; test_kernel.py finds what is ours to do, and starts Spark once")
def test_ctrl_c_ends_the_script_which_says_what_was_delivered_and_leaves_no_process(script: Script) -> None:
    script.read_until(r" tasks, [1-9][0-9,]* rows, ", START_S)
    left = script.started()
    script.press(CTRL_C)
    script.read_until(
        r"(?s)KeyboardInterrupt.*Kafka has acknowledged [1-9][0-9,]* rows or more; they stay in their topics", END_S
    )
    assert script.process.wait(END_S) == -signal.SIGINT
    assert "reentrant call" not in script.text
    _, alive = psutil.wait_procs(left, END_S)
    assert alive == []


@contextmanager
def interrupted_when_rows_are_written(metrics: sks.DeliveryMetrics) -> Iterator[None]:
    """Sends SIGINT to this process, as Ctrl+C does, once a task reports rows. Its handler is PySpark's."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            if metrics.running().records:
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        pytest.param(
            "at-least-once",
            r"Kafka has acknowledged [1-9][0-9,]* rows or more; they stay in their topics",
            marks=pytest.mark.whole("a job; the interrupt is the same"),
        ),
        ("exactly-once", r"^batch 0 of job-[0-9a-f]+ was aborted: none of its rows are visible, .*\.$"),
    ],
)
def test_without_a_bar_the_interrupt_says_what_was_written_and_the_format_can_be_used_again(
    spark: SparkSession, metrics: sks.DeliveryMetrics, guarantee: str, said: str
) -> None:
    told: list[WriteEvent] = []
    metrics.writes.add(told.append)
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        to = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"}
        slow = {"max.records.per.second": "1000", "delivery.guarantee": guarantee}
        with pytest.raises(KeyboardInterrupt) as caught, interrupted_when_rows_are_written(metrics):
            sks.publish(numbers(spark, 1_000_000), options={**to, **slow}, metrics=metrics, progress=False)
        assert re.search(said, caught.value.__notes__[-1])
        numbers(spark, 10).write.format("kafka_sink").options(**to).mode("append").save()
    (failed,) = [event for event in told if isinstance(event, WriteFailed)]
    assert (failed.message, failed.is_interrupt) == ("publish was interrupted", True)


@pytest.mark.spark
def test_an_interrupt_before_the_job_says_that_nothing_was_written(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(publish_module, "check_reachable", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        sks.publish(numbers(spark, 10), topic="events", bootstrap_servers="127.0.0.1:1")
    assert caught.value.__notes__ == ["The job had not begun, so nothing was written."]
