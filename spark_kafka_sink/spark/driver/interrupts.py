"""Cancels the jobs of a call that is interrupted."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_CANCEL_S: Final = 10.0

Tagging = Callable[[str], object]

GOES_ON: Final = "Spark may go on with the job, because it could not be cancelled here. Cancel it in Spark's user interface."
"""A note of the exception if Spark refused to cancel the job."""


@contextmanager
def cancelled_if_interrupted(spark: SparkSession) -> Iterator[None]:
    """Cancels the jobs that this thread starts within the block if it is interrupted.

    In a terminal PySpark's own handler of SIGINT cancels all jobs. A notebook's kernel replaces that handler in each cell, and
    the job would go on, and write rows after the call has raised. If the job cannot be cancelled, a note of the exception says
    so.

    Args:
        spark: The session, also of Spark Connect.
    """
    handled = sys.exception()
    tag = f"kafka-sink-call-{uuid.uuid4().hex}"
    add, cancel, remove = _tagging(spark)
    try:
        add(tag)
        is_tagged = True
    except Exception as error:  # whatever a shared cluster refuses it with
        logger.info("jobs cannot be cancelled: %s: %s", type(error).__name__, error)
        is_tagged = False
    try:
        yield
    except BaseException as error:
        interrupt = _interrupt_of(error, handled)
        if interrupt is None:
            raise
        if not (is_tagged and _is_cancelled(cancel, tag)):
            interrupt.add_note(GOES_ON)
        if interrupt is error:
            raise
        raise interrupt from None
    finally:
        if is_tagged:
            try:
                remove(tag)
            except Exception as error:  # the session was stopped meanwhile
                logger.debug("a tag stays: %s: %s", type(error).__name__, error)


@contextmanager
def without_pysparks_handler() -> Iterator[None]:
    """Has Ctrl+C raise KeyboardInterrupt only, instead of calling PySpark's handler of SIGINT first.

    That one cancels all jobs, also those of other queries. It calls the JVM in the middle of another call to it, so py4j often
    raises "reentrant call" and logs long tracebacks. A handler of the program's or of a notebook's stays.
    """
    before = signal.getsignal(signal.SIGINT)
    is_pysparks = str(getattr(before, "__module__", "")).startswith("pyspark.")
    if not is_pysparks or threading.current_thread() is not threading.main_thread():  # other threads get no signals
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_of(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """Returns the interrupt that ended a block, also if another error followed on it; None if there was none.

    An interrupt leaves py4j's connection with an answer that nobody has read. PySpark's next call, while the interrupt passes
    through it, takes that answer for its own, and raises Py4JError instead.

    Args:
        error: What the block raised.
        handled: What was being handled before the block: it is the context of any error inside.
    """
    found: BaseException | None = error
    while found is not None and found is not handled:
        if isinstance(found, KeyboardInterrupt | SystemExit):
            return found
        found = found.__context__
    return None


def _tagging(spark: SparkSession) -> tuple[Tagging, Tagging, Tagging]:
    """Returns what adds a tag to the jobs of this thread, cancels the jobs with a tag, and removes the tag.

    SparkSession has all three, too. But its interruptTag knows only the tags that its thread of the JVM has added, and after an
    interrupt Python has another thread there.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect
        return spark.addTag, spark.interruptTag, spark.removeTag
    return context.addJobTag, context.cancelJobsWithTag, context.removeJobTag


def _is_cancelled(cancel: Tagging, tag: str) -> bool:
    """Cancels in a thread of its own, which no second interrupt reaches: people press Ctrl+C again if nothing happens."""
    failures: list[str] = []

    def run() -> None:
        try:
            # As an interrupt passes through PySpark's client of Spark Connect, that has the server end the operation. The server
            # then may know no operation with the tag any more.
            cancel(tag)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run, name="kafka-sink-cancel", daemon=True)
    thread.start()
    thread.join(_CANCEL_S)
    if thread.is_alive():
        failures.append(f"Spark has not answered for {_CANCEL_S:g} s")
    if failures:
        logger.warning("the job of an interrupted call could not be cancelled: %s", failures[0])
    return not failures
