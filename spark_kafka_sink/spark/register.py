"""`register(spark)`: the sink's name in a session, and the driver's handle on its metrics."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.spark.continuous import end_continuous_queries
from spark_kafka_sink.spark.data_source import reporting_to
from spark_kafka_sink.spark.metrics import DeliveryMetrics

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# One handle per SparkContext: sessions share it, and a notebook cell that runs twice starts no second listener.
_lock = threading.Lock()
_handles: dict[str, DeliveryMetrics] = {}


def register(spark: SparkSession) -> DeliveryMetrics:
    """Make `format("kafka_sink")` known in the session `spark`, and report to the handle that is returned.

    Called again, also with another session of the same SparkContext, it returns the same handle. Without it the format works as
    well from Spark 4.1 on (package pyspark_kafka_sink), but nothing is counted, and no continuous query is ended with an error.
    Call it in each Python thread that uses the format: Spark looks for Python data sources in the thread's active session, and
    says DATA_SOURCE_NOT_FOUND in a thread that has none. `spark` becomes that active session.

    On Spark Connect the format is registered and the handle says that it cannot count.
    """
    metrics = _metrics(spark)
    if metrics.available:
        # First: Spark 4.0 looks into the active session, not into `spark`, for what is registered already.
        _make_active(spark)
    spark.dataSource.register(reporting_to(metrics.feed))
    return metrics


def _make_active(spark: Any) -> None:
    """Make `spark` the active session of this thread, which PySpark does only in the thread that made it."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def _metrics(spark: SparkSession) -> DeliveryMetrics:
    context = _context(spark)
    if context is None:
        logger.warning("Spark Connect has no accumulators: deliveries through kafka_sink are not counted in this session")
        return DeliveryMetrics(None)
    with _lock:
        application = str(context.applicationId)
        if application not in _handles or _handles[application].closed:
            for old in _handles.values():
                old.close()
            _handles.clear()
            _handles[application] = DeliveryMetrics(context, partial(end_continuous_queries, spark))
        return _handles[application]


def _context(spark: SparkSession) -> SparkContext | None:
    try:
        return spark.sparkContext
    except AttributeError:
        # PySparkAttributeError: JVM_ATTRIBUTE_NOT_SUPPORTED
        return None
