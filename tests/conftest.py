"""What all tests share: the fixtures of Kafka, and an environment in which Spark's workers run this very Python."""

from __future__ import annotations

import importlib.metadata
import os
import sys

import pytest

pytest_plugins = [
    "tests.kafka.fixtures",
    "tests.kafka.transaction_fixtures",
    "tests.kafka.version_fixtures",
    "tests.security.kdc",
    "tests.tiers",
]

# Spark starts the PATH's `python3` otherwise, which is not the one that has the project's dependencies.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# Tests stay on the loopback address, whatever the host's name resolves to.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def pytest_configure(config: pytest.Config) -> None:
    if importlib.metadata.version("pyspark").startswith("4.0."):
        # 4.0 leaves the sockets open on which it fetches rows (pyspark/util.py, _create_local_socket); later ones close them.
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")
