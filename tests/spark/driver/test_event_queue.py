"""A queue whose receiver is slow, broken or away delays nobody."""

from __future__ import annotations

import logging
import threading

import pytest

from spark_kafka_sink.options.secret import HIDDEN
from spark_kafka_sink.spark.driver.event_queue import NOISY, EventQueue, error_text
from tests.planted_secrets import MARK

WAIT_S = 60


def queue(send, most: int = 1000, may_drop=lambda event: False) -> EventQueue[str]:  # type: ignore[no-untyped-def]
    return EventQueue("Test", send, may_drop, most, quiet=NOISY)


def test_a_slow_receiver_delays_only_the_stop_and_that_has_a_deadline(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    one = queue(lambda event: release.wait())
    try:
        for event in "abc":
            one.put(event)
        with caplog.at_level(logging.WARNING):
            assert one.stop(0.2) == 3
        assert [record.getMessage() for record in caplog.records] == ["Test: 3 events were lost"]
    finally:
        release.set()
        one._thread.join(60)  # other tests look at all threads of queues


def test_failures_are_logged_once_without_passwords(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: str) -> None:
        raise OSError(f"{event}: cannot reach http://user:s3cret@host/")

    with caplog.at_level(logging.WARNING):
        one = queue(fail)
        for event in "abc":
            one.put(event)
        assert one.stop(WAIT_S) == 3
    first, last = (record.getMessage() for record in caplog.records)
    assert first == (
        "Test: an event could not be sent, and further failures are not logged: OSError: a: cannot reach http://host/"
    )
    assert last == "Test: 3 events were lost"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_receiver_raises_the_next_event_is_sent(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    def send(event: str) -> None:
        if event == "bad":
            raise error
        sent.append(event)

    with caplog.at_level(logging.WARNING):
        one = queue(send)
        for event in ("a", "bad", "b"):
            one.put(event)
        assert one.stop(WAIT_S) == 1
    assert sent == ["a", "b"]
    assert type(error).__name__ in caplog.records[0].getMessage()


def test_if_too_many_wait_the_less_important_go_first() -> None:
    started, release, sent = threading.Event(), threading.Event(), []

    def send(event: str) -> None:
        started.set()
        assert release.wait(WAIT_S)
        sent.append(event)

    one = queue(send, most=3, may_drop=str.islower)
    one.put("S")
    assert started.wait(WAIT_S)
    for event in ("A", "b", "C", "D"):
        one.put(event)
    release.set()
    assert one.stop(WAIT_S) == 1
    assert sent == ["S", "A", "C", "D"]


def test_a_stopped_queue_takes_nothing_and_has_no_thread() -> None:
    sent: list[str] = []
    one = queue(sent.append)
    one.stop(WAIT_S)
    one.put("late")
    assert one.stop(WAIT_S) == 0
    assert sent == []
    assert not [thread for thread in threading.enumerate() if thread.name == "kafka-sink-events"]


def test_the_clients_own_retries_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    noisy = logging.getLogger("urllib3.connectionpool")
    one = queue(lambda event: noisy.warning("Retrying %s", event))
    with caplog.at_level(logging.WARNING):
        one.put("a")
        one.stop(WAIT_S)
        noisy.warning("of another thread")
    assert [record.getMessage() for record in caplog.records] == ["of another thread"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"cannot reach http://user:{MARK}@host/x now", "cannot reach http://host/x now"),
        (f"http://user:pa@{MARK}@host/x", "http://host/x"),
        (f"http://user:pa/{MARK}@host/x", "http://host/x"),
        (f"http://user:pa?{MARK}@host/x", "http://host/x"),
        (f"passed http://me:{MARK}/y7kq@h:1: 'me:{MARK}' is no host", f"passed http://h:1: '{HIDDEN}:{HIDDEN}' is no host"),
        (f"Max retries exceeded with url: /api?api-key={MARK} (why)", "Max retries exceeded with url: /api?... (why)"),
        ("\x1b[31mred\x07\n two", "\\x1b[31mred\\x07 two"),
    ],
)
def test_a_text_loses_logins_queries_and_control_characters(text: str, expected: str) -> None:
    assert error_text(ValueError(text)) == expected


def test_a_long_text_is_cut() -> None:
    assert len(error_text(ValueError("x" * 10_000))) == 300
    assert error_text(ValueError("/" * 10_000_000)) == ""
    cut = f"at http://user:{MARK}{'y' * 10_000}@host"
    assert error_text(ValueError(cut)) == "at http:"
