"""Runs the command `spark-kafka-sink` as `python -m spark_kafka_sink`, for example where no script is installed."""

from __future__ import annotations

from spark_kafka_sink.cli.main import main

if __name__ == "__main__":
    main(prog_name="spark-kafka-sink")
