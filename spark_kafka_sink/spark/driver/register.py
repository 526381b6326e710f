"""`register(spark)` registers the format in a session and returns the driver's handle on its metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.options.record_options import check_header_names
from spark_kafka_sink.spark.driver.active_queries import java_queries
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.plan.data_source import NAME, reporting_to
from spark_kafka_sink.spark.plan.writers import NOT_WRITTEN
from spark_kafka_sink.spark.python_workers import check_workers_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# One handle per SparkContext: sessions share it, and a notebook cell that runs twice starts no second listener.
_lock = threading.Lock()
_handles: dict[str, DeliveryMetrics] = {}


def register(spark: SparkSession, *, options: Mapping[str, object] | None = None) -> DeliveryMetrics:
    """Registers `format("kafka_sink")` in a session and returns a handle that counts its deliveries.

    From Spark 4.1 on the format also works without this call, but then nothing is counted, and continuous queries do not end
    with an error. Call it in each Python thread that uses the format: Spark looks for Python data sources in the thread's
    active session, and raises DATA_SOURCE_NOT_FOUND in a thread that has none. `spark` becomes the active session.

    It adds kafka.sasl.*, kafka.ssl.*, kafka.proxy.* and schema.registry.* to `spark.sql.redaction.options.regex` of this
    session, so that Spark hides their values in plans, in its user interface and in the event log. It logs a warning if Spark's
    Python workers would run a Python that lacks the sink.

    On Spark Connect the format is registered, but the handle cannot count. The same holds where Spark denies access to its JVM,
    as on shared clusters of Databricks. One warning lists what does not work.

    Args:
        spark: The session.
        options: Options for all writes with the format in this session. An option of a write replaces the same one here. Spark
            does not show these options, so put passwords and keys here.

    Returns:
        The handle. All sessions of one SparkContext share it, so a second call returns the same handle.
    """
    check_header_names(list(options or {}))
    metrics, problems = _metrics(spark)
    if metrics.available:
        # First: Spark 4.0 looks into the active session, not into `spark`, for what is registered already.
        problems += make_active(spark)
        _hide_override(spark)
        check_workers_python(spark.sparkContext, is_planned=True)
    spark.dataSource.register(reporting_to(metrics.feed, options or {}))
    problems += _hide_secret_options(spark)
    if problems:
        logger.warning("register: not everything is allowed in this session: %s", "; ".join(problems))
    return metrics


def make_active(spark: Any) -> list[str]:
    """Makes `spark` the active session of this thread and returns what failed. PySpark does it only in the creating thread.

    After a call of Spark's is interrupted, Python's thread gets another thread of the JVM, which has no active session.
    """
    try:
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    except Exception as error:  # AttributeError, py4j's, PySpark's: whatever refuses it
        text = "the active session of this thread cannot be set, so the format may not be found in threads that have another"
        return [f"{text} ({_first_line(error)})"]
    return []


_OVERRIDE_LOGGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"


def _hide_override(spark: Any) -> None:
    """Hides Spark's warning that this data source replaced the one that Spark found itself.

    Spark logs it at each start of a query, and this logger has no other warning. The source that Spark finds cannot know this
    driver's counters and options, because Spark pickles it in another process.
    """
    try:
        log4j = spark._jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(_OVERRIDE_LOGGER, log4j.Level.ERROR)
    except Exception as error:  # whatever refuses it, or another log4j
        logger.debug("the warning of %s stays: %s", _OVERRIDE_LOGGER, _first_line(error))


_REDACTION: Final = "spark.sql.redaction.options.regex"
# All of security's: a misspelled name, or one without the prefix, holds the same secret.
_HIDDEN: Final = r"(?i:^(kafka\.)?(sasl|ssl|https|proxy|schema\.registry|basic\.auth|bearer\.auth)\.)"


def _hide_secret_options(spark: Any) -> list[str]:
    """Adds the options of security to those whose values Spark hides in plans, and returns what failed.

    `spark.redaction.regex` alone knows neither sasl.jaas.config nor ssl.keystore.key, and cannot be set in a running session.
    """
    try:
        hidden = spark.conf.get(_REDACTION)
        if _HIDDEN not in hidden:
            spark.conf.set(_REDACTION, f"{hidden}|{_HIDDEN}" if hidden else _HIDDEN)
    except Exception as error:  # whatever Spark Connect or a shared cluster refuses it with
        return [f"{_REDACTION} cannot be set, so give secrets with register(spark, options=...) ({_first_line(error)})"]
    return []


def _metrics(spark: SparkSession) -> tuple[DeliveryMetrics, list[str]]:
    """Returns the handle, and what failed."""
    try:
        context = spark.sparkContext
    except AttributeError:  # PySparkAttributeError, whose words are about the attribute
        return _uncounted("Spark Connect has no accumulators", None)
    except Exception as error:
        return _uncounted("Spark does not allow sparkContext here", error)
    try:
        return _handle(spark, context), []
    except Exception as error:
        return _uncounted("Spark does not allow accumulators here", error)


def _uncounted(reason: str, error: Exception | None) -> tuple[DeliveryMetrics, list[str]]:
    cause = "" if error is None else f" ({_first_line(error)})"
    return DeliveryMetrics(None, reason=reason), [f"{reason}, so deliveries through kafka_sink are not counted{cause}"]


def _handle(spark: SparkSession, context: SparkContext) -> DeliveryMetrics:
    with _lock:
        application = str(context.applicationId)
        if application not in _handles or _handles[application].closed:
            made = DeliveryMetrics(context, partial(end_continuous_queries, spark))
            for old in _handles.values():
                old.close()
            _handles.clear()
            _handles[application] = made
        return _handles[application]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def end_continuous_queries(spark: Any) -> None:
    """Ends the continuous queries that write to this sink, because Spark only logs that their commits raise and goes on forever.

    It looks at all sessions of `spark`'s context. `query.awaitTermination()` then raises `NOT_WRITTEN`. It never raises itself,
    because it runs in the listener's thread, which also receives the reports of other queries.
    """
    try:
        for query in java_queries(spark).values():
            # None: it ended while the others were looked at. The name is as it was given to format(), which ignores case.
            if (
                query is not None
                and query.getClass().getSimpleName() == "ContinuousExecution"
                and str(query.sink().name()).lower() == NAME
            ):
                # As Spark itself ends one whose epochs pile up; of several failures the first stays.
                query.stopInNewThread(spark._jvm.java.lang.UnsupportedOperationException(str(UsageError(NOT_WRITTEN))))
    except Exception as error:
        logger.warning("a continuous query, which writes nothing, could not be ended: %s: %s", type(error).__name__, error)
