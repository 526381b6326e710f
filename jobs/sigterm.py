"""SIGTERM, with which schedulers stop a job: told to the program, which can then end in order."""

from __future__ import annotations

import signal
import threading
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


class _Handler:
    """Java's SignalHandler; it is called in a thread of its own."""

    def __init__(self, noticed: threading.Event) -> None:
        self._noticed = noticed

    def handle(self, _signal: object) -> None:
        self._noticed.set()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def sigterm_noticed(spark: SparkSession) -> threading.Event:
    """An event that SIGTERM sets, to this process or to the JVM, in place of ending either. Call it in the main thread."""
    noticed = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: noticed.set())
    # Under spark-submit the JVM is the process that a scheduler knows. It would stop Spark under the running query, and close
    # the pipe that this program prints to.
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), _Handler(noticed))
    return noticed
