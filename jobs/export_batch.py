"""Files (Parquet, CSV, JSON) or any other batch source of Spark to Kafka, once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # spark-submit puts only this file's own folder there

import spark_kafka_sink as sks
from jobs.command_line import CommandLine, parse, spark_session
from jobs.outcome import ExitCode, ending
from jobs.settings import load
from jobs.sources import batch_records
from spark_kafka_sink.spark.plugin_checks import checked_options


def main(arguments: Sequence[str] | None = None) -> int:
    line = parse("export_batch", __doc__ or "", "conf/export_batch.toml --set source.path=/data/day=2026-11-21", arguments)
    return ending(lambda: _export(line), verbose=line.verbose)


def _export(line: CommandLine) -> ExitCode:
    settings = load(line.settings, line.overrides)
    options = settings.texts("sink")
    checked_options(options)  # before Spark starts, which takes seconds
    spark = spark_session(settings, "export_batch")
    try:
        report = sks.publish(batch_records(spark, settings), options=options)
    finally:
        spark.stop()
    # Here, as it would drown among the lines that Spark prints while it stops.
    print(report, flush=True)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
