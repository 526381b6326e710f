"""register() in Spark's JVM, and where a program may not reach into it: Databricks' shared clusters, and what is like them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.plan.data_source import reporting_to
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.spark.frames import numbers, options, read_values

pytestmark = pytest.mark.spark

NOT_ALLOWED = [
    AttributeError("_jvm"),
    PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "_jvm"}),
    Py4JError("Method public org.apache.spark.SparkContext is not whitelisted on class class SparkSession"),
]


class Restricted:
    """The same object, of which some attributes are not allowed, and others are something else."""

    def __init__(self, original: object, error: Exception, *refused: str, instead: Mapping[str, object] | None = None) -> None:
        self._own = original, error, refused, instead or {}

    def __getattr__(self, name: str) -> Any:
        original, error, refused, instead = self.__dict__["_own"]
        if name in refused:
            raise error
        return instead[name] if name in instead else getattr(original, name)


@pytest.fixture(autouse=True)
def _no_handle(metrics: sks.DeliveryMetrics) -> None:
    metrics.close()  # the next register makes another


def write(spark: SparkSession, kafka: Kafka, topic: str) -> None:
    df = numbers(spark, 10)
    df.write.format("kafka_sink").options(**options(kafka, topic=topic)).mode("append").save()


def test_without_the_jvm_the_format_is_registered_and_counts(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    for error in NOT_ALLOWED:
        caplog.clear()
        handle = sks.register(cast("SparkSession", Restricted(spark, error, "_jvm")))
        (warning,) = caplog.messages
        assert "register: not everything is allowed in this session: " in warning
        assert "active session of this thread" in warning
        assert handle.available
    write(spark, kafka, topic)
    assert read_values(kafka, topic) == list(range(10))
    assert handle.live is not None
    assert handle.live.records == 10
    handle.close()


def test_what_cannot_be_counted_is_an_error_to_read_and_never_0(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    for error, refused in itertools.product(NOT_ALLOWED, ("accumulator", "sparkContext", "applicationId")):
        caplog.clear()
        context = Restricted(spark.sparkContext, error, refused)
        session = Restricted(spark, error, refused, instead={"sparkContext": context})
        handle = sks.register(cast("SparkSession", session))
        (warning,) = caplog.messages
        assert "deliveries through kafka_sink are not counted" in warning
        assert refused != "sparkContext" or "JVM_ATTRIBUTE" not in warning  # Spark Connect, which is named
        assert not handle.available
        for count in ("live", "committed"):
            with pytest.raises(UsageError, match="are not counted"):
                getattr(handle, count)
        handle.close()
    write(spark, kafka, topic)
    assert read_values(kafka, topic) == list(range(10))


LOGGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"


@contextmanager
def warnings_of_spark(spark: SparkSession) -> Iterator[Any]:
    """Yields a java.io.StringWriter that gets the JVM's warnings as lines."""
    jvm: Any = spark._jvm
    log4j, written = jvm.org.apache.logging.log4j, jvm.java.io.StringWriter()
    root = log4j.LogManager.getContext(False).getRootLogger()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, written, "test", False, True)
    appender.start()
    root.addAppender(appender)
    spark.sparkContext.setLogLevel("WARN")
    try:
        yield written
    finally:
        spark.sparkContext.setLogLevel("OFF")
        root.removeAppender(appender)
        log4j.core.config.Configurator.setLevel(LOGGER, log4j.Level.ERROR)


@pytest.mark.smoke
def test_spark_does_not_warn_that_another_source_is_replaced(spark: SparkSession) -> None:
    """Neither where it is registered, nor at the start of a query, for which Spark copies the session."""
    session: Any = spark._jsparkSession
    log4j = cast("Any", spark._jvm).org.apache.logging.log4j
    with warnings_of_spark(spark) as written:
        log4j.core.config.Configurator.setLevel(LOGGER, log4j.Level.WARN)
        spark.dataSource.register(reporting_to(Feed()))
        assert "The data source kafka_sink replaced a " in written.toString()
        written.getBuffer().setLength(0)
        sks.register(spark).close()
        assert session.cloneSession().sessionState().dataSourceManager().dataSourceExists("kafka_sink")
        assert "replaced" not in written.toString()
