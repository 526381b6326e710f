"""A Kafka sink for PySpark in pure Python: it sends DataFrames to Kafka as Arrow columns, with its own producer.

Names are imported on first use. Spark's Python workers need few of them, and the producer needs no Spark.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# pip checks this, but nothing does where the sources are on the path. Any later error would be about syntax.
if sys.version_info < (3, 11):  # noqa: UP036
    raise ImportError(
        f"spark-kafka-sink requires Python 3.11 or newer, and {sys.executable} is Python {sys.version.split()[0]}."
        " Use a newer Python, in Spark's workers, too: set PYSPARK_PYTHON."
    )

from spark_kafka_sink.version import __version__ as __version__

if TYPE_CHECKING:
    from spark_kafka_sink import errors
    from spark_kafka_sink.client.cluster import Cluster, Node
    from spark_kafka_sink.errors import KafkaSinkError
    from spark_kafka_sink.exporters.openlineage import LineageEmitter, emit_lineage
    from spark_kafka_sink.exporters.opentelemetry import export_opentelemetry
    from spark_kafka_sink.exporters.prometheus import DriverCollector, PrometheusServer, serve_prometheus
    from spark_kafka_sink.exporters.tracing import WriteTracer, trace_writes
    from spark_kafka_sink.formats.schemas.registry_serializer import (
        AvroSerializer,
        JsonSchemaSerializer,
        ProtobufSerializer,
    )
    from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
    from spark_kafka_sink.producer.base.bad_rows import BadRows
    from spark_kafka_sink.producer.base.producer_record import PartitionInfo, ProducerRecord, RecordMetadata
    from spark_kafka_sink.producer.interceptors import ColumnsMetadata, ProducerInterceptor
    from spark_kafka_sink.producer.partitioners.partitioner import Partitioner
    from spark_kafka_sink.producer.producer import Producer
    from spark_kafka_sink.producer.scopes.send_scope import SendScope
    from spark_kafka_sink.producer.serializers.serializer import Serializer
    from spark_kafka_sink.producer.single_records.record_future import RecordFuture
    from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from spark_kafka_sink.records.columns import RecordColumns
    from spark_kafka_sink.reports.delivery_report import DeliveryReport
    from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
    from spark_kafka_sink.spark.batch_report import BatchReport
    from spark_kafka_sink.spark.driver.check import check
    from spark_kafka_sink.spark.driver.checks.report import CheckLine, CheckReport
    from spark_kafka_sink.spark.driver.explain import Explanation, explain
    from spark_kafka_sink.spark.driver.foreach_batch import foreach_batch
    from spark_kafka_sink.spark.driver.history import QueryHistory
    from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
    from spark_kafka_sink.spark.driver.partition_writer import partition_writer
    from spark_kafka_sink.spark.driver.publish import PublishReport, TaskReport, publish
    from spark_kafka_sink.spark.driver.register import register

__all__ = [
    "AvroSerializer",
    "BadRows",
    "BatchReport",
    "CheckLine",
    "CheckReport",
    "Cluster",
    "ColumnsMetadata",
    "ConsumerGroupMetadata",
    "DeliveryMetrics",
    "DeliveryReport",
    "DriverCollector",
    "Explanation",
    "JsonSchemaSerializer",
    "KafkaSinkError",
    "LineageEmitter",
    "Node",
    "OffsetAndMetadata",
    "PartitionInfo",
    "PartitionReport",
    "PartitionReports",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerRecord",
    "PrometheusServer",
    "ProtobufSerializer",
    "PublishReport",
    "QueryHistory",
    "RecordColumns",
    "RecordFuture",
    "RecordMetadata",
    "SendScope",
    "Serializer",
    "TaskReport",
    "WriteTracer",
    "check",
    "emit_lineage",
    "errors",
    "explain",
    "export_opentelemetry",
    "foreach_batch",
    "partition_writer",
    "producer_config",
    "publish",
    "register",
    "serve_prometheus",
    "trace_writes",
]

_HOME = {
    "AvroSerializer": "formats.schemas.registry_serializer",
    "BadRows": "producer.base.bad_rows",
    "BatchReport": "spark.batch_report",
    "CheckLine": "spark.driver.checks.report",
    "CheckReport": "spark.driver.checks.report",
    "Cluster": "client.cluster",
    "ColumnsMetadata": "producer.interceptors",
    "ConsumerGroupMetadata": "producer.transactions.offsets",
    "DeliveryMetrics": "spark.driver.metrics",
    "DeliveryReport": "reports.delivery_report",
    "DriverCollector": "exporters.prometheus",
    "Explanation": "spark.driver.explain",
    "JsonSchemaSerializer": "formats.schemas.registry_serializer",
    "KafkaSinkError": "errors",
    "LineageEmitter": "exporters.openlineage",
    "Node": "client.cluster",
    "OffsetAndMetadata": "producer.transactions.offsets",
    "PartitionInfo": "producer.base.producer_record",
    "PartitionReport": "reports.partition_reports",
    "PartitionReports": "reports.partition_reports",
    "Partitioner": "producer.partitioners.partitioner",
    "Producer": "producer.producer",
    "ProducerConfig": "options.producer_options",
    "ProducerInterceptor": "producer.interceptors",
    "PrometheusServer": "exporters.prometheus",
    "ProtobufSerializer": "formats.schemas.registry_serializer",
    "ProducerRecord": "producer.base.producer_record",
    "PublishReport": "spark.driver.publish",
    "QueryHistory": "spark.driver.history",
    "RecordColumns": "records.columns",
    "RecordFuture": "producer.single_records.record_future",
    "RecordMetadata": "producer.base.producer_record",
    "SendScope": "producer.scopes.send_scope",
    "Serializer": "producer.serializers.serializer",
    "TaskReport": "spark.driver.publish",
    "WriteTracer": "exporters.tracing",
    "check": "spark.driver.check",
    "emit_lineage": "exporters.openlineage",
    "errors": "errors",
    "explain": "spark.driver.explain",
    "export_opentelemetry": "exporters.opentelemetry",
    "foreach_batch": "spark.driver.foreach_batch",
    "partition_writer": "spark.driver.partition_writer",
    "producer_config": "options.producer_options",
    "publish": "spark.driver.publish",
    "register": "spark.driver.register",
    "serve_prometheus": "exporters.prometheus",
    "trace_writes": "exporters.tracing",
}


# They work without pyarrow and numpy, and without PySpark.
_NEED_NO_LIBRARIES = ("options.producer_options", "errors")
_NEED_NO_SPARK = ("spark.driver.check", "spark.driver.checks.report", "spark.driver.explain")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOME[name] not in _NEED_NO_LIBRARIES:
        installation = import_module(f"{__name__}.installation")
        needs_spark = _HOME[name].startswith(("spark.", "exporters.")) and _HOME[name] not in _NEED_NO_SPARK
        (installation.check_spark if needs_spark else installation.check_libraries)()
    home = import_module(f"{__name__}.{_HOME[name]}")
    value = home if name == _HOME[name] else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
