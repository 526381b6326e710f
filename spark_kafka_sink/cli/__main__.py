"""`python -m spark_kafka_sink.cli`: runs `spark-kafka-sink` where the script is not installed."""

from __future__ import annotations

from spark_kafka_sink.cli.main import main

if __name__ == "__main__":
    main(prog_name="spark-kafka-sink")
