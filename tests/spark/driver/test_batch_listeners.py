"""Functions that get the reports of commits: none of them can hold a commit up or end the others' calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver import event_queue
from spark_kafka_sink.spark.driver.event_queue import BatchListeners
from tests.waiting import HOUR_S

WAIT_S = 60


def batch(number: int) -> BatchReport:
    return BatchReport("q", number, 0.0, 1.0, DeliveryReport())


@pytest.fixture
def listeners() -> Iterator[BatchListeners]:
    made = BatchListeners()
    yield made
    made.stop()


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_there_is_a_thread_from_the_first_listener_until_the_stop() -> None:
    listeners = BatchListeners()
    listeners.put(batch(1))
    before = names()
    listeners.add(print)
    assert len(names()) == len(before) + 1
    listeners.stop()
    assert names() == before
    listeners.put(batch(2))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ZeroDivisionError("why")])
def test_a_listener_that_raises_is_one_warning_and_the_calls_go_on(
    listeners: BatchListeners, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    heard: list[int] = []

    def raises(report: BatchReport) -> None:
        raise error

    listeners.add(raises)
    listeners.add(lambda report: heard.append(report.batch))
    for number in range(3):
        listeners.put(batch(number))
    listeners.stop()
    assert heard == [0, 1, 2]
    assert [record.getMessage() for record in caplog.records] == [
        f"a batch listener raised {type(error).__name__}: {error}; further errors of it are not logged"
    ]


def test_a_listener_may_remove_itself_and_stop_everything(listeners: BatchListeners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "WAIT_S", HOUR_S)
    heard: list[int] = []

    def once(report: BatchReport) -> None:
        heard.append(report.batch)
        listeners.remove(once)
        listeners.stop()

    listeners.add(once)
    thread = next(one for one in threading.enumerate() if one.name == "kafka-sink-events")
    listeners.put(batch(1))
    thread.join()
    assert heard == [1]


def test_a_forked_child_calls_nothing_and_ends(listeners: BatchListeners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "WAIT_S", HOUR_S)  # it does not wait for the thread that it lacks
    heard: list[int] = []
    listeners.add(lambda report: heard.append(report.batch))
    child = os.fork()
    if not child:
        listeners.put(batch(1))
        listeners.stop()
        os._exit(7 if heard else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    listeners.put(batch(2))
    listeners.stop()
    assert heard == [2]


PROGRAM = """
import time
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.driver.event_queue import BatchListeners
from spark_kafka_sink.spark.batch_report import BatchReport
listeners = BatchListeners()
def slow(report):
    time.sleep(0.2)
    print(report.batch, flush=True)
listeners.add(slow)
for number in range(3):
    listeners.put(BatchReport("q", number, 0.0, 1.0, DeliveryReport()))
"""


def test_the_end_of_the_program_waits_for_what_was_committed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout.split() == ["0", "1", "2"]
