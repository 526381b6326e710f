"""The streaming queries of this driver, in all its sessions, and what Spark says about them."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from spark_kafka_sink.spark.watch_table import QueryState

logger = logging.getLogger(__name__)


def active_queries() -> dict[str, QueryState] | None:
    """Returns the state of each query that runs, by id; None if Spark does not say, as on some shared clusters."""
    try:
        session: Any = SparkSession.getActiveSession()
        if session is None:
            return None
        # spark.streams knows the queries of one session only. Spark's own classes, the same on 4.0 and 4.3.
        found = session._jsparkSession.sharedState().activeStreamingQueries().values()
        # None: it ended while the others were looked at.
        return {
            str(query.id()): QueryState(str(query.name() or ""), str(query.status().message()))
            for query in found
            if query is not None
        }
    except Exception as error:  # AttributeError, py4j's, PySpark's: whatever refuses it
        logger.info("it is not known which queries run: %s: %s", type(error).__name__, error)
        return None
