from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_kafka_sink.spark.driver.interrupts import (
    GOES_ON,
    cancelled_if_interrupted,
    without_pysparks_handler,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Connect:
    """A session of Spark Connect, which has no SparkContext. fails: the name of a call that it refuses."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self.tags: set[str] = set()
        self.operations = ["an operation's id"]
        self._fails = fails

    def _called(self, name: str, tag: str) -> None:
        if name == self._fails:
            raise RuntimeError(f"{name} is not allowed")
        self.calls.append(name)
        self.tags.add(tag)

    def addTag(self, tag: str) -> None:
        self._called("addTag", tag)

    def interruptTag(self, tag: str) -> list[str]:
        assert threading.current_thread() is not threading.main_thread()  # which a second interrupt would reach
        self._called("interruptTag", tag)
        return self.operations

    def removeTag(self, tag: str) -> None:
        self._called("removeTag", tag)


def ended(session: Connect, error: BaseException | None) -> BaseException | None:
    """Returns what a block raises in which an error happens."""
    try:
        with cancelled_if_interrupted(cast("SparkSession", session)):
            if error is not None:
                raise error
    except BaseException as raised:
        return raised
    return None


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupt_cancels_the_jobs_of_its_call(interrupt: BaseException) -> None:
    session = Connect()
    assert ended(session, interrupt) is interrupt
    assert session.calls == ["addTag", "interruptTag", "removeTag"]
    assert len(session.tags) == 1
    assert getattr(interrupt, "__notes__", []) == []


@pytest.mark.parametrize("error", [None, ValueError()])
def test_whatever_else_ends_a_call_cancels_nothing(error: BaseException | None) -> None:
    session = Connect()
    assert ended(session, error) is error
    assert session.calls == ["addTag", "removeTag"]


def test_each_call_has_a_tag_of_its_own() -> None:
    session = Connect()
    ended(session, None)
    ended(session, None)
    assert len(session.tags) == 2


@pytest.mark.parametrize("refused", ["addTag", "interruptTag"])
def test_where_a_job_cannot_be_cancelled_the_interrupt_says_so(refused: str, caplog: pytest.LogCaptureFixture) -> None:
    interrupt = KeyboardInterrupt()
    with caplog.at_level(logging.INFO):
        assert ended(Connect(refused), interrupt) is interrupt
    assert interrupt.__notes__ == [GOES_ON]
    assert f"RuntimeError: {refused} is not allowed" in caplog.text


def test_an_operation_that_spark_connect_has_ended_already_is_not_said_to_go_on() -> None:
    session, interrupt = Connect(), KeyboardInterrupt()
    session.operations = []
    assert ended(session, interrupt) is interrupt
    assert getattr(interrupt, "__notes__", []) == []


def test_a_tag_that_stays_is_no_error() -> None:
    assert ended(Connect("removeTag"), None) is None


Handler = Callable[[int, Any], None]


@pytest.fixture
def handler() -> Iterator[Handler]:
    """A handler of SIGINT, which is this program's own."""

    def noted(number: int, frame: Any) -> None:
        raise RuntimeError("the handler was called")

    before = signal.signal(signal.SIGINT, noted)
    yield noted
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_does_not_reach_the_handler_that_calls_the_jvm(handler: Handler) -> None:
    handler.__module__ = "pyspark.core.context"
    with pytest.raises(KeyboardInterrupt), without_pysparks_handler():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_handler_of_the_program_stays(handler: Handler) -> None:
    with without_pysparks_handler():
        assert signal.getsignal(signal.SIGINT) is handler


def test_a_call_in_another_thread_leaves_signals_alone(handler: Handler) -> None:
    handler.__module__ = "pyspark.core.context"
    found: list[object] = []

    def call() -> None:
        with without_pysparks_handler():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert found == [handler]


def test_an_interrupt_that_an_error_of_py4js_has_replaced_is_raised() -> None:
    session, interrupt, replaced = Connect(), KeyboardInterrupt(), RuntimeError("Answer from Java side is empty")
    replaced.__context__ = interrupt
    assert ended(session, replaced) is interrupt
    assert session.calls == ["addTag", "interruptTag", "removeTag"]


def test_an_older_interrupt_that_the_caller_handles_is_not_raised_again() -> None:
    session, error = Connect(), RuntimeError("no")
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert ended(session, error) is error
    assert session.calls == ["addTag", "removeTag"]
