"""The streaming queries of this driver, in all its sessions, and what Spark says about them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any

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
