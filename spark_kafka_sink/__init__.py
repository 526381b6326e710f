"""A Kafka sink for PySpark in pure Python: DataFrames go to Kafka as Arrow columns, through a producer of our own.

Names are imported when they are used: Spark's Python workers need few of them, and the producer alone needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_kafka_sink.config import ProducerConfig, producer_config
    from spark_kafka_sink.errors import KafkaSinkError
    from spark_kafka_sink.producer.producer import Producer
    from spark_kafka_sink.producer.report import DeliveryReport, PartitionReport
    from spark_kafka_sink.producer.serializers.serializer import Serializer
    from spark_kafka_sink.records.columns import RecordColumns
    from spark_kafka_sink.spark.foreach_batch import foreach_batch
    from spark_kafka_sink.spark.metrics import DeliveryMetrics
    from spark_kafka_sink.spark.partition_writer import partition_writer
    from spark_kafka_sink.spark.publish import PublishReport, publish
    from spark_kafka_sink.spark.register import register

__all__ = [
    "DeliveryMetrics",
    "DeliveryReport",
    "KafkaSinkError",
    "PartitionReport",
    "Producer",
    "ProducerConfig",
    "PublishReport",
    "RecordColumns",
    "Serializer",
    "foreach_batch",
    "partition_writer",
    "producer_config",
    "publish",
    "register",
]

_HOME = {
    "DeliveryMetrics": "spark.metrics",
    "DeliveryReport": "producer.report",
    "KafkaSinkError": "errors",
    "PartitionReport": "producer.report",
    "Producer": "producer.producer",
    "ProducerConfig": "config",
    "PublishReport": "spark.publish",
    "RecordColumns": "records.columns",
    "Serializer": "producer.serializers.serializer",
    "foreach_batch": "spark.foreach_batch",
    "partition_writer": "spark.partition_writer",
    "producer_config": "config",
    "publish": "spark.publish",
    "register": "spark.register",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
