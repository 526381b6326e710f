"""Reads a topic back with confluent-kafka and compares it with the source it was written from, record by record.

It takes the very settings that export_batch (or publish_stream, from files) wrote with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # spark-submit puts only this file's own folder there

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.command_line import CommandLine, parse, spark_session
from jobs.outcome import ExitCode, ending
from jobs.settings import Settings, load
from jobs.sources import batch_records
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.spark.plugin_checks import checked_options
from spark_kafka_sink.verify.comparison import COLUMNS
from spark_kafka_sink.verify.read_back import consumer_settings, whole_topic
from spark_kafka_sink.verify.topic_records import check_serializers, compare_with_topic


def main(arguments: Sequence[str] | None = None) -> int:
    line = parse("verify_topic", __doc__ or "", "conf/export_batch.toml", arguments)
    return ending(lambda: _verify(line), verbose=line.verbose)


def _verify(line: CommandLine) -> ExitCode:
    settings = load(line.settings, line.overrides)
    options = checked_options(settings.texts("sink"))
    check_serializers(options)
    check_extra("confluent_kafka", "verify_topic")
    topic = options.topic or settings.required("verify", "topic")
    columns = _columns(settings, options)
    examples = settings.count("verify", "examples", 5)
    allow_duplicates = settings.flag("verify", "allow_duplicates")
    topic_range = whole_topic(topic, _consumer(settings, options))
    spark = spark_session(settings, "verify_topic")
    try:
        rows = batch_records(spark, settings)
        compared = compare_with_topic(_of_topic(rows, options, topic), options, topic_range, columns=columns, examples=examples)
    finally:
        spark.stop()
    same = compared.same(allow_duplicates=allow_duplicates)
    print(f"topic {topic}: {'as the source has it' if same else 'DIFFERENT from the source'}\n{compared}", flush=True)
    return ExitCode.OK if same else ExitCode.DIFFERENCE


def _consumer(settings: Settings, options: SinkOptions) -> dict[str, str]:
    """[consumer] has names of librdkafka; where Kafka is, and most of its security, [sink] has said already."""
    return {**consumer_settings(options.producer), **settings.texts("consumer")}


def _columns(settings: Settings, options: SinkOptions) -> tuple[str, ...]:
    chosen = settings.text("verify", "columns")
    if chosen is not None:
        columns = tuple(name.strip() for name in chosen.split(","))
        if unknown := set(columns) - set(COLUMNS):
            raise settings.wrong("verify", "columns", f"names {min(unknown)!r}; it may have {', '.join(COLUMNS)}")
        return columns
    # Then the key does not decide the partition, and it is not known what did.
    by_key = not options.producer.partitioner_ignore_keys
    return tuple(name for name in COLUMNS if by_key or name != "partition")


def _of_topic(rows: DataFrame, options: SinkOptions, topic: str) -> DataFrame:
    """The rows that went to `topic`: all when it is an option, else those that name it."""
    return rows if options.topic else rows.where(F.col("topic") == topic)


if __name__ == "__main__":
    sys.exit(main())
