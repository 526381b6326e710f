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
    from spark_kafka_sink.formats.registry_serializer import (
        AvroSerializer,
        JsonSchemaSerializer,
        ProtobufSerializer,
    )
    from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
    from spark_kafka_sink.producer.base.bad_rows import BadRows
    from spark_kafka_sink.producer.base.producer_record import PartitionInfo, ProducerRecord, RecordMetadata
    from spark_kafka_sink.producer.interceptors import ColumnsMetadata, ProducerInterceptor
    from spark_kafka_sink.producer.partitioners.interface import Partitioner
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
    from spark_kafka_sink.spark.feed import RunningTasks
    from spark_kafka_sink.verify.tail import tail

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
    "RunningTasks",
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
    "tail",
    "trace_writes",
]

_NAMES = {
    "client.cluster": "Cluster Node",
    "errors": "KafkaSinkError errors",
    "exporters.openlineage": "LineageEmitter emit_lineage",
    "exporters.opentelemetry": "export_opentelemetry",
    "exporters.prometheus": "DriverCollector PrometheusServer serve_prometheus",
    "exporters.tracing": "WriteTracer trace_writes",
    "formats.registry_serializer": "AvroSerializer JsonSchemaSerializer ProtobufSerializer",
    "options.producer_options": "ProducerConfig producer_config",
    "producer.base.bad_rows": "BadRows",
    "producer.base.producer_record": "PartitionInfo ProducerRecord RecordMetadata",
    "producer.interceptors": "ColumnsMetadata ProducerInterceptor",
    "producer.partitioners.interface": "Partitioner",
    "producer.producer": "Producer",
    "producer.scopes.send_scope": "SendScope",
    "producer.serializers.serializer": "Serializer",
    "producer.single_records.record_future": "RecordFuture",
    "producer.transactions.offsets": "ConsumerGroupMetadata OffsetAndMetadata",
    "records.columns": "RecordColumns",
    "reports.delivery_report": "DeliveryReport",
    "reports.partition_reports": "PartitionReport PartitionReports",
    "spark.batch_report": "BatchReport",
    "spark.driver.check": "check",
    "spark.driver.checks.report": "CheckLine CheckReport",
    "spark.driver.explain": "Explanation explain",
    "spark.driver.foreach_batch": "foreach_batch",
    "spark.driver.history": "QueryHistory",
    "spark.driver.metrics": "DeliveryMetrics",
    "spark.driver.partition_writer": "partition_writer",
    "spark.driver.publish": "PublishReport TaskReport publish",
    "spark.driver.register": "register",
    "spark.feed": "RunningTasks",
    "verify.tail": "tail",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

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
