"""Spark's search for Python data sources, which imports pyspark_kafka_sink unguarded for every query that uses any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyspark_kafka_sink
from tests.package.programs import output_of, path_with
from tests.package.test_libraries import BROKEN

# Spark's own code, over buffers in place of sockets. A query is planned in another process, from what is pickled in this one.
LOOKED_UP = """
import io, sys
from pyspark.serializers import read_int
from pyspark.sql.worker.lookup_data_sources import _main
from pyspark.worker_util import pickleSer
found = io.BytesIO()
_main(io.BytesIO(), found)
found.seek(0)
for _ in range(read_int(found)):
    name, pickled = (found.read(read_int(found)) for _ in range(2))
    print(name.decode(), pickled.hex(), *sys.modules, flush=True)
"""

PLANNED = """
import sys
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.worker_util import pickleSer
source = pickleSer.loads(bytes.fromhex(sys.argv[1]))(options={"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
schema = StructType([StructField("value", BinaryType())])
exec(sys.argv[2])
for use in (lambda: source.writer(schema, False), lambda: source.streamWriter(schema, False), source.schema):
    try:
        print(type(use()).__name__)
    except Exception as error:
        assert error.__suppress_context__ or error.__context__ is None
        print(f"{type(error).__name__}: {error}")
"""


def used(path: str, before_use: str = "") -> tuple[list[str], set[str]]:
    """Returns what each use of the source that Spark has found leads to, and what finding it has imported.

    Args:
        path: PYTHONPATH.
        before_use: code that runs before the source is used.
    """
    _, pickled, *modules = next(line for line in output_of(LOOKED_UP, path=path).splitlines() if "kafka_sink" in line).split()
    return output_of(PLANNED, pickled, before_use, path=path).splitlines(), set(modules)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(pyspark_kafka_sink, "DefaultSource"), reason="Spark 4.0 knows the format only if registered"),
]


def test_the_sink_is_found_without_importing_it_and_then_writes(tmp_path: Path) -> None:
    uses, modules = used(path_with(tmp_path, {}))
    assert uses == [
        "KafkaSinkWriter",
        "KafkaSinkStreamWriter",
        "UsageError: [USAGE] kafka_sink only writes; read a topic with format('kafka')",
    ]
    assert not modules & {"spark_kafka_sink", "pyarrow", "numpy", "pandas"}


NAMED = {
    "pyarrow.py": (BROKEN, "InstallationError: [INSTALLATION] pyarrow cannot be imported by "),
    "numpy.py": ("__version__ = '1.26.4'", "InstallationError: [INSTALLATION] numpy 1.26.4 is too old, "),
    "cramjam.py": (BROKEN, "InstallationError: [INSTALLATION] cramjam cannot be imported by "),
    "lz4/frame.py": ("import no_such_module", "InstallationError: [INSTALLATION] lz4 cannot be imported by "),
    "spark_kafka_sink.py": ("", 'ImportError: format("kafka_sink") cannot be used: ModuleNotFoundError: No module named '),
    "spark_kafka_sink/__init__.py": ("def", 'ImportError: format("kafka_sink") cannot be used: SyntaxError: '),
}


@pytest.mark.parametrize("module", NAMED)
def test_whatever_is_broken_the_sink_is_found_and_its_use_is_one_line(tmp_path: Path, module: str) -> None:
    source, text = NAMED[module]
    uses, _ = used(path_with(tmp_path, {module: source}))
    assert len(uses) == 3
    assert all(use.startswith(text) for use in uses)
    assert all("pip install" in use for use in uses)


OLDER = "sys.version_info, sys.version = (3, 10, 13), '3.10.13 (main)'"


def test_on_python_3_10_the_sink_is_found_and_its_use_is_one_line(tmp_path: Path) -> None:
    uses, _ = used(path_with(tmp_path, {}), before_use=OLDER)
    assert len(uses) == 3
    assert all(use.startswith("ImportError: spark-kafka-sink requires Python 3.11 or newer, and ") for use in uses)
    assert all(
        use.endswith(" is Python 3.10.13. Use a newer Python, in Spark's workers, too: set PYSPARK_PYTHON.") for use in uses
    )


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "not a version"])
def test_a_pyspark_that_is_too_old_or_broken_does_not_fail_the_import(tmp_path: Path, version: str) -> None:
    path = path_with(tmp_path, {"pyspark.py": f"__version__ = {version!r}"})
    assert output_of("import pyspark_kafka_sink; print(hasattr(pyspark_kafka_sink, 'DefaultSource'))", path=path) == "False\n"
