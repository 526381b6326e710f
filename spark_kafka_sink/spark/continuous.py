"""Ends continuous queries into this sink with one clear error: Spark only logs that their commits raise, and goes on for ever."""

from __future__ import annotations

import logging
from typing import Any

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.spark.data_source import NAME
from spark_kafka_sink.spark.messages import NOT_WRITTEN

logger = logging.getLogger(__name__)


def end_continuous_queries(spark: Any) -> None:
    """End those of all sessions of `spark`'s context with `NOT_WRITTEN`, which `query.awaitTermination()` then raises.

    Never raises: it runs in the listener's thread, which reports of other queries need.
    """
    try:
        # spark.streams knows the queries of one session only. Spark's own classes, the same on 4.0 and 4.3.
        for query in spark._jsparkSession.sharedState().activeStreamingQueries().values():
            if _is_continuous_into_kafka_sink(query):
                # As Spark itself ends one whose epochs pile up; of several failures the first stays.
                query.stopInNewThread(spark._jvm.java.lang.UnsupportedOperationException(str(UsageError(NOT_WRITTEN))))
    except Exception as error:
        logger.warning("a continuous query, which writes nothing, could not be ended: %s: %s", type(error).__name__, error)


def _is_continuous_into_kafka_sink(query: Any) -> bool:
    # None: it ended while the others were looked at. The name is as it was given to format(), which ignores case.
    return (
        query is not None
        and query.getClass().getSimpleName() == "ContinuousExecution"
        and str(query.sink().name()).lower() == NAME
    )
