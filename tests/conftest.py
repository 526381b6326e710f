"""What all tests share: the fixtures of real Kafka, and an environment in which Spark's workers run this very Python."""

from __future__ import annotations

import os
import sys

pytest_plugins = ["tests.kafka.fixtures"]

# Spark starts the PATH's `python3` otherwise, which is not the one that has the project's dependencies.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# Tests stay on the loopback address, whatever the host's name resolves to.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
