"""What must be as before when somebody has done his worst to a broker."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker

MEGABYTE = 1 << 20
BROKER_THREADS = (
    "kafka-socket-acceptor",
    "kafka-network-thread",
    "kafka-request-handler",
    "broker-timer",
    "TxnMarkerSenderThread",
    "kafka-log-retention",
)


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextmanager
def nothing_escapes() -> Iterator[None]:
    """No exception that nobody expected, in any thread: the broker logs each of them as an error."""
    errors, logger = _Errors(), logging.getLogger("spark_kafka_sink.broker")
    logger.addHandler(errors)
    try:
        yield
    finally:
        logger.removeHandler(errors)
    assert errors.texts == [], f"{len(errors.texts)} errors, the first: {errors.texts[0]}"


@contextmanager
def threads_stay() -> Iterator[None]:
    """Those of brokers that run now still run. What other tests have left behind, a client's threads, may end."""
    before = {thread for thread in threading.enumerate() if thread.name.startswith(BROKER_THREADS)}
    assert before
    yield
    ended = {thread.name for thread in before if not thread.is_alive()}
    assert ended == set(), f"ended: {sorted(ended)}"


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    """Brokers' threads that were started meanwhile have ended. Those of others, whose tests are over, end when they like."""
    before = set(threading.enumerate())
    yield
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith(BROKER_THREADS)}
    assert left == set(), f"left: {sorted(left)}"


@contextmanager
def memory_stays(within: int) -> Iterator[None]:
    """In bytes of this whole process."""
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    yield
    gc.collect()
    grown = process.memory_info().rss - before
    assert grown < within, f"grew by {grown / MEGABYTE:.0f} MB"


def connections(broker: EmbeddedBroker) -> int:
    """Returns how many the first broker has."""
    return broker.server(1).connection_count()
