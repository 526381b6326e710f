"""The thread of markers and timeouts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_kafka_sink.broker.transaction.transaction_marker_channel_manager import MarkerSender


def _done(sender: MarkerSender) -> bool:
    reached = threading.Event()
    sender.submit(reached.set)
    return reached.wait(10)


def _fail() -> None:
    raise ValueError("as it must")


def test_does_one_after_the_other_in_order_and_what_came_before_its_start_too() -> None:
    sender = MarkerSender()
    seen: list[int] = []

    def seeing(number: int) -> Callable[[], None]:
        return lambda: seen.append(number)

    for number in range(3):
        sender.submit(seeing(number))
    sender.start()
    assert _done(sender)
    assert seen == [0, 1, 2]
    sender.stop()


def test_goes_on_after_work_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    sender = MarkerSender()
    sender.start()
    sender.submit(_fail)
    assert _done(sender)
    sender.stop()
    assert "A task of the transaction coordinator failed" in caplog.text


def test_stops_also_from_within_and_takes_nothing_more() -> None:
    sender = MarkerSender()
    sender.start()
    stopped = threading.Event()

    def stop() -> None:
        sender.stop()
        stopped.set()

    sender.submit(stop)
    assert stopped.wait(10)
    sender.stop()
    seen: list[int] = []
    sender.submit(lambda: seen.append(1))
    assert seen == []
