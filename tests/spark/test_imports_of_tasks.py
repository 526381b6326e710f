"""What Spark's Python processes import when they look the format up, plan, and write: each of them starts with it."""

from __future__ import annotations

import subprocess
import sys

COMMITS = ("spark_kafka_sink.spark.commits", "spark_kafka_sink.exactly_once.commit_log", "spark_kafka_sink.client.cluster_client")


def test_what_commits_is_not_imported_where_nothing_is_committed() -> None:
    program = "import sys, spark_kafka_sink.spark.data_source; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "spark_kafka_sink.spark.task_writer" in loaded
    assert not set(COMMITS) & set(loaded)
