"""What `import spark_kafka_sink` costs, and what it does where Python is too old."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import spark_kafka_sink
from tests.package.programs import ROOT, last_line, output_of

pytestmark = pytest.mark.slow

LOADED = """
import sys
before = set(sys.modules)
import spark_kafka_sink
print(*set(sys.modules) - before)
"""


def test_importing_the_package_is_quick_and_loads_no_library() -> None:
    modules = output_of(LOADED).split()
    assert len(modules) < 50
    loaded = {name.partition(".")[0] for name in modules}
    assert not loaded & {"pyspark", "pandas", "numpy", "pyarrow", "crc32c", "lz4", "zstandard", "cramjam", "click"}


def test_an_option_and_an_error_load_no_library() -> None:
    program = "import sys; from spark_kafka_sink import KafkaSinkError, producer_config; print(*sys.modules)"
    assert not set(output_of(program).split()) & {"pyspark", "numpy", "pyarrow"}


def test_the_version_is_that_of_the_command_line() -> None:
    assert output_of("import spark_kafka_sink; print(spark_kafka_sink.__version__)") == f"{spark_kafka_sink.__version__}\n"
    program = "import runpy, sys; sys.argv[1:] = ['--version']; runpy.run_module('spark_kafka_sink', run_name='__main__')"
    assert output_of(program) == f"spark-kafka-sink, version {spark_kafka_sink.__version__}\n"


OLD_PYTHON = "import sys; sys.version_info, sys.version = (3, 10, 13, 'final', 0), '3.10.13 (main)'; import spark_kafka_sink"


def test_python_3_10_is_named_with_what_to_do() -> None:
    assert last_line(OLD_PYTHON).startswith("ImportError: spark-kafka-sink requires Python 3.11 or newer, and ")
    assert " is Python 3.10.13. Use a newer Python" in last_line(OLD_PYTHON)


@pytest.mark.parametrize("package", ["spark_kafka_sink", "pyspark_kafka_sink"])
def test_python_3_10_can_read_what_says_so(package: str) -> None:
    source = Path(ROOT, package, "__init__.py").read_text()
    ast.parse(source, feature_version=(3, 10))
