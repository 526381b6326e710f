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
    from spark_kafka_sink.config import ProducerConfig, producer_config
    from spark_kafka_sink.errors import KafkaSinkError
    from spark_kafka_sink.exporters.openlineage import LineageEmitter, emit_lineage
    from spark_kafka_sink.exporters.opentelemetry import export_opentelemetry
    from spark_kafka_sink.exporters.prometheus import DriverCollector, PrometheusServer, serve_prometheus
    from spark_kafka_sink.exporters.tracing import WriteTracer, trace_writes
    from spark_kafka_sink.producer.bad_rows import BadRows
    from spark_kafka_sink.producer.interceptors import ColumnsMetadata, ProducerInterceptor
    from spark_kafka_sink.producer.partition_reports import PartitionReport, PartitionReports
    from spark_kafka_sink.producer.partitioners.partitioner import Partitioner
    from spark_kafka_sink.producer.producer import Producer
    from spark_kafka_sink.producer.producer_record import PartitionInfo, ProducerRecord, RecordMetadata
    from spark_kafka_sink.producer.report import DeliveryReport
    from spark_kafka_sink.producer.scopes.send_scope import SendScope
    from spark_kafka_sink.producer.serializers.schemas.registry_serializer import (
        AvroSerializer,
        JsonSchemaSerializer,
        ProtobufSerializer,
    )
    from spark_kafka_sink.producer.serializers.serializer import Serializer
    from spark_kafka_sink.producer.single_records.record_future import RecordFuture
    from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from spark_kafka_sink.records.columns import RecordColumns
    from spark_kafka_sink.spark.check import check
    from spark_kafka_sink.spark.checks.report import CheckLine, CheckReport
    from spark_kafka_sink.spark.explain import Explanation, explain
    from spark_kafka_sink.spark.foreach_batch import foreach_batch
    from spark_kafka_sink.spark.history import BatchReport, QueryHistory
    from spark_kafka_sink.spark.metrics import DeliveryMetrics
    from spark_kafka_sink.spark.partition_writer import partition_writer
    from spark_kafka_sink.spark.publish import PublishReport, TaskReport, publish
    from spark_kafka_sink.spark.register import register

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
    "AvroSerializer": "producer.serializers.schemas.registry_serializer",
    "BadRows": "producer.bad_rows",
    "BatchReport": "spark.history",
    "CheckLine": "spark.checks.report",
    "CheckReport": "spark.checks.report",
    "Cluster": "client.cluster",
    "ColumnsMetadata": "producer.interceptors",
    "ConsumerGroupMetadata": "producer.transactions.offsets",
    "DeliveryMetrics": "spark.metrics",
    "DeliveryReport": "producer.report",
    "DriverCollector": "exporters.prometheus",
    "Explanation": "spark.explain",
    "JsonSchemaSerializer": "producer.serializers.schemas.registry_serializer",
    "KafkaSinkError": "errors",
    "LineageEmitter": "exporters.openlineage",
    "Node": "client.cluster",
    "OffsetAndMetadata": "producer.transactions.offsets",
    "PartitionInfo": "producer.producer_record",
    "PartitionReport": "producer.partition_reports",
    "PartitionReports": "producer.partition_reports",
    "Partitioner": "producer.partitioners.partitioner",
    "Producer": "producer.producer",
    "ProducerConfig": "config",
    "ProducerInterceptor": "producer.interceptors",
    "PrometheusServer": "exporters.prometheus",
    "ProtobufSerializer": "producer.serializers.schemas.registry_serializer",
    "ProducerRecord": "producer.producer_record",
    "PublishReport": "spark.publish",
    "QueryHistory": "spark.history",
    "RecordColumns": "records.columns",
    "RecordFuture": "producer.single_records.record_future",
    "RecordMetadata": "producer.producer_record",
    "SendScope": "producer.scopes.send_scope",
    "Serializer": "producer.serializers.serializer",
    "TaskReport": "spark.publish",
    "WriteTracer": "exporters.tracing",
    "check": "spark.check",
    "emit_lineage": "exporters.openlineage",
    "errors": "errors",
    "explain": "spark.explain",
    "export_opentelemetry": "exporters.opentelemetry",
    "foreach_batch": "spark.foreach_batch",
    "partition_writer": "spark.partition_writer",
    "producer_config": "config",
    "publish": "spark.publish",
    "register": "spark.register",
    "serve_prometheus": "exporters.prometheus",
    "trace_writes": "exporters.tracing",
}


# They work without pyarrow and numpy, and without PySpark.
_NEED_NO_LIBRARIES = ("config", "errors")
_NEED_NO_SPARK = ("spark.check", "spark.checks.report", "spark.explain")


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
