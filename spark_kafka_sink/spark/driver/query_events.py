"""Starts and ends of streaming queries, from Spark, for exporters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_kafka_sink.spark.driver.active_queries import java_queries, java_query
from spark_kafka_sink.spark.driver.explain import sink_error
from spark_kafka_sink.spark.plan.data_source import NAME
from spark_kafka_sink.spark.plan.exported_error import exported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

logger = logging.getLogger(__name__)

END_S: Final = 2.0
"""How long the end of a query that is over may be on its way. Spark's bus of listeners takes milliseconds, if it is not busy."""

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class QueryBegan:
    """A streaming query began, or began again. One that runs already when listening begins counts as begun then.

    Attributes:
        query_id: Spark's id, which its checkpoint keeps.
        run_id: Spark's id of this run.
        name: Its name; empty if it has none.
        at: When, in seconds since the epoch; of a query that ran before, when listening began.
        is_sinks: Whether it writes with `format("kafka_sink")`. One with foreachBatch does not.
    """

    query_id: str
    run_id: str
    name: str
    at: float
    is_sinks: bool


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A streaming query ended.

    Attributes:
        query_id: As of `QueryBegan`.
        run_id: As of `QueryBegan`.
        at: When, in seconds since the epoch.
        error: Why, without any secret or data of rows; None: it was stopped, or it was done.
    """

    query_id: str
    run_id: str
    at: float
    error: str | None


QueryEvent = QueryBegan | QueryEnded


class QueryEvents(StreamingQueryListener):
    """Tells a function about each query of a session that runs already, begins or ends. Each run begins and ends once.

    Threads: Spark calls it in threads of py4j's; while a query starts, its `start()` waits for that. It never raises. `_changed`
    guards the runs, and is held while the function runs, so that a run which is found active does not begin after its end. The
    function must not wait. The JVM is never asked under the lock.
    """

    def __init__(self, spark: SparkSession, tell: Callable[[QueryEvent], object]) -> None:
        self._spark = spark
        self._tell = tell
        self._changed = threading.Condition()
        self._runs: set[str] = set()  # began, and their ends were not told yet
        self._over: set[str] | None = set()  # ended while it begins to listen

    def begin(self) -> bool:
        """Begins to listen, and tells the queries that run. Returns False after a warning if Spark does not allow it."""
        try:
            self._spark.streams.addListener(self)
        except Exception as error:  # whatever a shared cluster refuses it with
            text = str(error).splitlines()[:1]
            logger.warning("the ends of streaming queries are not seen: %s: %s", type(error).__name__, *text or [""])
            return False
        for began in _running(self._spark):
            self._began(began)
        with self._changed:
            self._over = None
        return True

    def end(self) -> None:
        """Ends listening, after the ends of queries that are over have come, or END_S. It does nothing if the JVM has ended.

        `query.stop()` returns before Spark tells listeners about it, in another thread.
        """
        deadline = time.monotonic() + END_S
        while self._runs and (left := deadline - time.monotonic()) > 0:
            active = active_runs(self._spark)
            with self._changed:
                if active is None or self._runs <= active:
                    break
                self._changed.wait(min(left, _LOOK_S))
        self._runs = set()
        try:
            self._spark.streams.removeListener(self)
        except Exception as error:
            logger.debug("the listener stays: %s", type(error).__name__)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query_id = str(event.id)
        self._began(QueryBegan(query_id, str(event.runId), event.name or "", time.time(), is_sinks(self._spark, query_id)))

    def _began(self, event: QueryBegan) -> None:
        with self._changed:
            if event.run_id in self._runs or event.run_id in (self._over or ()):
                return  # a query that starts right now is active, too
            self._runs.add(event.run_id)
            self._tell(event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Does nothing: commits tell more."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Does nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        ended = QueryEnded(str(event.id), str(event.runId), time.time(), _error(event))
        with self._changed:
            self._runs.discard(ended.run_id)
            if self._over is not None:
                self._over.add(ended.run_id)
            self._tell(ended)
            self._changed.notify_all()


def _running(spark: Any) -> list[QueryBegan]:
    """Returns the queries of the session that run. It never raises, and without an answer of Spark's there are none."""
    try:
        found = [(str(query.id), str(query.runId), str(query.name or "")) for query in spark.streams.active]
    except Exception as error:  # whatever a shared cluster refuses it with
        logger.debug("active queries are not known: %s", type(error).__name__)
        return []
    return [QueryBegan(query_id, run_id, name, time.time(), is_sinks(spark, query_id)) for query_id, run_id, name in found]


def is_sinks(spark: Any, query_id: str) -> bool:
    """Returns whether an active query writes with `format("kafka_sink")`."""
    try:
        query = java_query(spark, query_id)
        return query is not None and str(query.sink().name()).lower() == NAME
    except Exception as error:  # the sink of foreachBatch has no name, and raises
        logger.debug("the sink of query %s has no name: %s", query_id, type(error).__name__)
        return False


def active_runs(spark: Any) -> set[str] | None:
    """Returns the ids of the runs of all queries that Spark lists as active, in any session. None: it does not tell."""
    try:
        queries = list(java_queries(spark).values())
        return {str(query.runId()) for query in queries if query is not None}
    except Exception as error:  # whatever a shared cluster refuses it with, or the JVM has ended
        logger.debug("active queries are not known: %s", type(error).__name__)
        return None


def _error(event: QueryTerminatedEvent) -> str | None:
    """Returns what may leave the driver of the sink's own error, and of another one only Spark's class: texts may quote rows."""
    if not event.exception:
        return None
    found = sink_error(str(event.exception), is_certain=True)
    if found is not None:
        return exported(found)
    named = getattr(event, "errorClassOnException", None)
    return f"the query failed with {named or 'an exception'}; query.exception() and Spark's log have the reason"
