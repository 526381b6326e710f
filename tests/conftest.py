"""Fixtures of Kafka for all tests, and an environment in which Spark's workers run the same Python."""

from __future__ import annotations

import gc
import importlib.metadata
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from tests.environment import MADE_FROM
from tests.faults.exactly_once.class_archive import java_options

pytest_plugins = [
    "tests.kafka.fixtures",
    "tests.registry.fixtures",
    "tests.scheduling",
    "tests.security.kdc",
    "tests.tiers",
    "tests.timings",
]

# Spark starts the PATH's `python3` otherwise, which is not the one that has the project's dependencies.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# Java's archive of Spark's classes (tests/faults/exactly_once/class_archive.py) belongs to a path, which each clone can share.
if (_MADE_FROM := Path(sys.prefix, MADE_FROM)).exists():
    _KEPT = Path(_MADE_FROM.read_text(), Path(pyspark.__path__[0]).relative_to(sys.prefix))
    if _KEPT.exists():  # what no checkout has used for a month is removed
        os.environ.setdefault("SPARK_HOME", str(_KEPT))
# Tests stay on the loopback address, whatever the host's name resolves to.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


# click 8.1 mixes stderr into stdout unless it is told otherwise, and 8.2 has no such option.
if "mix_stderr" in inspect.signature(CliRunner).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)  # type: ignore[method-assign, assignment]


# Of every JVM of Spark that a test starts, in whatever process: the options that spark-submit adds to a driver's own.
SPARK_OPTIONS = "SPARK_SUBMIT_OPTS"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a fixture starts Spark: with these options its JVM takes half of the processor time."""
    if item.get_closest_marker("spark") and SPARK_OPTIONS not in os.environ:
        # A Spark that is installed elsewhere does not match the archive, and Java would say so on stdout.
        os.environ[SPARK_OPTIONS] = f"{java_options()} -Xlog:disable"


LONGEST_ID = 100


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shortens the names of long texts: of a text of 17 MB each worker told the others, at each of its reports."""
    return f"{val[:LONGEST_ID]!r}... of {len(val):,}" if isinstance(val, str | bytes) and len(val) > LONGEST_ID else None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The tests themselves are no garbage: a collection that looks at all of them takes half a second, and 5 ms without."""
    gc.collect()
    gc.freeze()


LOGGERS = ("", "spark_kafka_sink", "pyspark")


@pytest.fixture(autouse=True)
def log_levels_are_left_as_they_were() -> Iterator[None]:
    """Fails a test that leaves a log level behind, which would make other tests fail in some orders."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    assert {name: logging.getLogger(name).level for name in LOGGERS} == before


def pytest_configure(config: pytest.Config) -> None:
    if importlib.metadata.version("pyspark").startswith("4.0."):
        # 4.0 leaves the sockets open on which it fetches rows (pyspark/util.py, _create_local_socket); later ones close them.
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")
