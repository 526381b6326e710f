"""Ends the transactions of streaming queries that were stopped between their tasks and their commit.

Spark's thread of the query is interrupted then, so it can start no Python process: it never calls `commit` or `abort` of the
sink, and consumers that read committed would wait until brokers abort the transactions. In a query's first micro-batch this takes
1 to 2 s, because Spark starts the process that commits.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.active_queries import active_ids
from spark_kafka_sink.spark.feed import writer_of
from spark_kafka_sink.spark.open_transactions import MOST_QUERIES, OpenTransaction

logger = logging.getLogger(__name__)

# Consumers wait for as long. Spark is asked only while a query has transactions that finished tasks have left: 5 ms each time.
_LOOK_S: Final = 1.0
# At the end of a program, after which no further query is begun with.
_LAST_S: Final = 5.0


class StoppedQueries:
    """Looks every second for queries that Spark no longer runs, though the driver knows of transactions that they left open.

    When Spark itself could call the sink, a query that it no longer runs has none: its abort is over by then. A query that runs
    again ends them with its next commit.

    Threads: the listener's thread calls `planned`, which starts one daemon thread that looks. `_lock` guards the options, and
    `_looking` keeps that thread and the end of the program from looking at once.
    """

    def __init__(
        self,
        driver: str,
        left_open: Callable[[], list[OpenTransaction]],
        committed: Callable[[BatchReport], None],
        aborted: Callable[[str, int], None],
    ) -> None:
        """See `DeliveryMetrics` for the functions. driver: as of `Feed`."""
        self._driver, self._left_open, self._committed, self._aborted = driver, left_open, committed, aborted
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._options: dict[str, bytes] = {}  # by writer, as `Feed.planned` told them. They hold secrets.
        self._tried = set[tuple[str, int]]()  # queries and batches: one attempt is made to end their transactions
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def planned(self, content: bytes) -> None:
        """Takes the options of a query, each time Spark plans a micro-batch."""
        writer = writer_of(content)
        with self._lock:
            self._options.pop(writer, None)
            self._options[writer] = content
            if len(self._options) > MOST_QUERIES:
                del self._options[next(iter(self._options))]
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="kafka-sink-stopped-queries", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def close(self) -> None:
        """Looks a last time, and ends the thread. A program often ends right after it has stopped its queries."""
        if self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._look(time.monotonic() + _LAST_S)

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_S):
            self._look(float("inf"))

    def _look(self, deadline: float) -> None:
        """deadline: on time.monotonic's clock. After it no further query is begun with."""
        with self._looking:
            with self._lock:
                known = dict(self._options)
            found = [each for each in self._left_open() if each.writer in known]
            self._tried &= {(each.query_id, each.batch) for each in found}
            for each in found:
                if time.monotonic() > deadline:
                    return
                # Asked for each, because the end of another one may have taken seconds, and a query may have begun again.
                active = active_ids()
                if active is None:
                    return
                key = each.query_id, each.batch
                if each.query_id in active:
                    self._tried.discard(key)
                elif key not in self._tried:
                    self._tried.add(key)
                    self._end(each, known[each.writer])

    def _end(self, left: OpenTransaction, content: bytes) -> None:
        from spark_kafka_sink.spark.plan.failed_writes import abort_micro_batch

        try:
            options, batch = sink_options(json.loads(content), warns_of_security=False), MicroBatch(left.query_id, left.batch)
            if abort_micro_batch(options, batch, self._driver, self._committed, is_commit_begun=True):
                self._aborted(left.query_id, left.batch)
        except Exception as error:  # such as a reference that only Spark's processes can resolve
            text = "the open transactions of query %s, which was stopped, could not be ended: %s: %s"
            logger.warning(text, left.query_id, type(error).__name__, str(error).split("\n", 1)[0])
