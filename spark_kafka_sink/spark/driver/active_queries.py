"""The streaming queries of this driver, in all its sessions: what Spark says about them, and their names."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryState:
    """The state of a query that runs, as Spark tells it. name: empty if it has none. text: what it does now."""

    name: str
    text: str


def java_queries(session: Any) -> Any:
    """Returns Spark's map of the queries that run in all sessions, by UUID. Raises what py4j does, or AttributeError.

    spark.streams knows the queries of one session only. These are Spark's own classes, the same on 4.0 and 4.3.
    """
    return session._jsparkSession.sharedState().activeStreamingQueries()


def java_query(session: Any, query_id: str) -> Any:
    """Returns one of them; None if it does not run. It raises as `java_queries`, and also if the id is no UUID."""
    key = session._jvm.java.util.UUID.fromString(query_id)
    return java_queries(session).get(key)


def active_queries() -> dict[str, QueryState] | None:
    """Returns the state of each query that runs, by id; None if Spark does not say, as on some shared clusters."""
    try:
        session: Any = SparkSession.getActiveSession()
        if session is None:
            return None
        found = java_queries(session).values()
        # None: it ended while the others were looked at.
        return {
            str(query.id()): QueryState(str(query.name() or ""), str(query.status().message()))
            for query in found
            if query is not None
        }
    except Exception as error:  # AttributeError, py4j's, PySpark's: whatever refuses it
        logger.info("it is not known which queries run: %s: %s", type(error).__name__, error)
        return None


def active_ids() -> frozenset[str] | None:
    """Returns the ids of the queries that run in all sessions; None if Spark does not say. It never raises.

    It may be called in any thread, unlike `active_queries`, because a thread has no active session of its own at first. The four
    calls of the JVM take 5 ms, with any number of queries.
    """
    try:
        session: Any = SparkSession._instantiatedSession
        if session is None:  # stopped, with all queries
            return frozenset()
        # As one text, because each element of a Java collection is another call.
        text = str(java_queries(session).keySet().toString())
    except Exception as error:  # AttributeError, py4j's, PySpark's: whatever refuses it
        logger.info("it is not known which queries run: %s: %s", type(error).__name__, error)
        return None
    return frozenset(re.findall(r"[0-9a-f-]{36}", text))


def active_name(query_id: str) -> str | None:
    """Returns the name of a query, "" if it has none; None if it does not run, or if Spark does not say. It never raises.

    It may be called in any thread. The calls of the JVM take 5 ms.
    """
    try:
        session: Any = SparkSession._instantiatedSession
        query = None if session is None else java_query(session, query_id)
        return None if query is None else str(query.name() or "")
    except Exception as error:  # AttributeError, py4j's, PySpark's: whatever refuses it
        logger.info("the name of query %s is not known: %s", query_id, type(error).__name__)
        return None


MOST_NAMES: Final = 400
"""That are kept. A name takes 200 bytes."""


class QueryNames:
    """The names of a driver's queries by id, kept after a query's end, because Spark forgets it then.

    Threads: any may ask and tell, under the lock. It is not held while the JVM is asked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()  # of these. Who starts one again may give it another name.

    def learn(self, query_id: str, name: str) -> None:
        """Keeps the name of a query. name: empty if it has none."""
        with self._lock:
            self._names.pop(query_id, None)
            self._names[query_id] = name
            self._ended.discard(query_id)
            if len(self._names) > MOST_NAMES:
                oldest = next(iter(self._names))
                del self._names[oldest]
                self._ended.discard(oldest)

    def name(self, query_id: str, active: Container[str] | None = None) -> str:
        """Returns the name of a query; "" if it has none, or if it had ended before anybody asked. It never raises.

        Args:
            query_id: Spark's id of the query.
            active: The ids of the queries that run, if they are known. Spark is not asked for a query that has ended, and asked
                again when it runs again.
        """
        with self._lock:
            known = self._names.get(query_id)
            if active is not None and query_id not in active:
                if known is not None:
                    self._ended.add(query_id)
                return known or ""
            if known is not None and query_id not in self._ended:
                return known
        found = active_name(query_id)
        if found is None:
            return known or ""
        self.learn(query_id, found)
        return found
