"""Delivery reports on their way back to the driver: the only place that knows accumulators.

`live` comes through a Spark accumulator, at the end of each successful task; `committed` from the commits of whole batches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator, AccumulatorParam

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.listener import CommitListener, ListenerAddress, send_refusal, send_report
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.report_text import summary

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)


class DeliveryReportParam(AccumulatorParam[DeliveryReport | None]):
    """Merges reports. None is "nothing reported", which is not the same as a report of 0 records."""

    def zero(self, value: DeliveryReport | None) -> DeliveryReport | None:
        return None

    def addInPlace(self, value1: DeliveryReport | None, value2: DeliveryReport | None) -> DeliveryReport | None:
        # A new object each time: PySpark's accumulator thread adds while the driver program reads the last one.
        reports = [report for report in (value1, value2) if report is not None]
        return total(reports) if reports else None


@dataclass(frozen=True, slots=True)
class Feed:
    """What travels with a task and its commit to bring their reports back; both None where that is not possible."""

    accumulator: Accumulator[DeliveryReport | None] | None = None
    listener: ListenerAddress | None = None

    def task_done(self, report: DeliveryReport) -> None:
        """In a task: Spark takes the update to the driver when the task has succeeded, once."""
        if self.accumulator is not None:
            self.accumulator.add(report)

    def committed(self, reports: Iterable[DeliveryReport]) -> None:
        """In Spark's commit process. What was written is written: a driver program that is not there is no failure."""
        if self.listener is None:
            return
        try:
            send_report(self.listener, total(reports))
        except OSError as error:
            logger.warning("a commit's delivery report did not reach the driver program, so it counts too little: %s", error)

    def refused(self) -> None:
        """In Spark's commit process, of which Spark only logs the errors of continuous queries."""
        if self.listener is None:
            return
        try:
            send_refusal(self.listener)
        except OSError as error:
            logger.warning("the driver program could not be told of a refused commit; a continuous query goes on: %s", error)


class DeliveryMetrics:
    """The driver's handle on what its sinks delivered. `register(spark)` makes one. `closed`: whether `close` was called.

    On Spark Connect, which has no accumulators, reading a count is a UsageError.

    Threads: the listener's thread and callers of `add_committed` add to `committed`, under the lock; PySpark's accumulator
    thread replaces `live`.
    """

    def __init__(
        self,
        context: SparkContext | None,
        on_refusal: Callable[[], None] = lambda: None,
        why: str = "Spark Connect has no accumulators",
    ) -> None:
        """`context` is None where nothing can be counted: then reading a count is an error, which says `why`, never a false 0.

        `on_refusal` is called in the listener's thread when a commit was refused because no task had written.
        """
        self.closed = False
        self._why = why
        self._lock = threading.Lock()
        self._committed: DeliveryReport | None = None
        self._accumulator: Accumulator[DeliveryReport | None] | None = None
        self._listener: CommitListener | None = None
        if context is not None:
            self._accumulator = context.accumulator(None, DeliveryReportParam())
            self._listener = CommitListener(self.add_committed, on_refusal)

    @property
    def available(self) -> bool:
        """Whether this session can count at all."""
        return self._accumulator is not None

    @property
    def live(self) -> DeliveryReport | None:
        """What successful tasks reported so far, also of batches not committed yet; a batch written again counts again.

        None while nothing was reported: also when the sink was used from a session or thread where it is not registered.
        """
        self._check_available()
        assert self._accumulator is not None
        return self._accumulator.value

    @property
    def committed(self) -> DeliveryReport | None:
        """What the batches that Spark committed delivered; None while none was reported."""
        self._check_available()
        with self._lock:
            return self._committed

    @property
    def feed(self) -> Feed:
        """For a task to take along."""
        return Feed(self._accumulator, self._listener.address if self._listener else None)

    def add_committed(self, report: DeliveryReport) -> None:
        with self._lock:
            self._committed = total([report] if self._committed is None else [self._committed, report])

    def close(self) -> None:
        """Stop listening for commits; what was counted stays readable, and `register` makes a new handle."""
        self.closed = True
        if self._listener is not None:
            self._listener.stop()

    def _check_available(self) -> None:
        if not self.available:
            raise UsageError(f"{self._why}, so deliveries are not counted here; publish(df, ...) returns its report there")

    def __repr__(self) -> str:
        if not self.available:
            return f"DeliveryMetrics(not available: {self._why})"
        live, committed = self.live, self.committed
        return "\n".join(
            f"{name}: {summary(report) if report else 'nothing reported yet'}"
            for name, report in (("live", live), ("committed", committed))
        )
