"""Libraries that are missing, broken or too old: one line with the cause and the fix, where they are first needed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from spark_kafka_sink import installation
from tests.package.programs import ROOT, last_line, output_of, path_with, run

pytestmark = pytest.mark.slow

PRODUCER = "from spark_kafka_sink import Producer"
PUBLISH = "from spark_kafka_sink import publish"

BROKEN = 'raise ImportError("libx.so.1: cannot open shared object file: No such file or directory")'
# As NumPy does it: a page of advice around the cause.
ADVICE = """
try:
    raise ImportError("_multiarray_umath.so: undefined symbol: cblas_x")
except ImportError as error:
    raise ImportError("\\n\\nIMPORTANT: PLEASE READ THIS\\n\\nfor advice\\n") from error
"""
MISSING = 'raise ModuleNotFoundError("No module named x")'

CASES = {
    "old pyarrow": (
        {"pyarrow.py": "__version__ = '15.0.2'"},
        PRODUCER,
        r"pyarrow 15\.0\.2 is too old, spark-kafka-sink requires 19 or newer: pip install 'pyarrow>=19'",
    ),
    "old pyarrow that a newer numpy breaks": (
        {"pyarrow.py": BROKEN, "pyarrow-15.0.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: pyarrow\nVersion: 15.0.2\n"},
        PRODUCER,
        r"pyarrow 15\.0\.2 is too old, spark-kafka-sink requires 19 or newer: pip install 'pyarrow>=19'",
    ),
    "old numpy": (
        {"numpy.py": "__version__ = '1.26.4'"},
        "from spark_kafka_sink.records import batch_header",
        r"numpy 1\.26\.4 is too old, spark-kafka-sink requires 2\.0 or newer: pip install 'numpy>=2\.0'",
    ),
    "broken pyarrow": (
        {"pyarrow.py": BROKEN},
        PRODUCER,
        r"pyarrow cannot be imported by \S+ \(ImportError: libx\.so\.1: .*\): pip install --force-reinstall pyarrow",
    ),
    "broken numpy": (
        {"numpy.py": ADVICE},
        "from spark_kafka_sink.broker import EmbeddedBroker",
        r"numpy cannot be imported by \S+ \(ImportError: _multiarray_umath\.so: undefined symbol: cblas_x\): pip .* numpy",
    ),
    "broken lz4": (
        {"lz4/frame.py": "raise OSError('invalid ELF header')"},
        PRODUCER,
        r"lz4 cannot be imported by \S+ \(OSError: invalid ELF header\): pip install --force-reinstall lz4",
    ),
    "missing cramjam": (
        {"cramjam.py": MISSING},
        PRODUCER,
        r"cramjam cannot be imported by \S+ \(ModuleNotFoundError: No module named x\): pip install --force-reinstall cramjam",
    ),
    "pyspark 3.5": (
        {"pyspark.py": "__version__ = '3.5.1'"},
        PUBLISH,
        r"pyspark 3\.5\.1 is too old, spark-kafka-sink requires 4\.0 or newer: use a platform with Spark 4\.0 or newer,"
        r" or pip install --upgrade 'spark-kafka-sink\[spark\]'",
    ),
    "broken pyspark": (
        {"pyspark.py": BROKEN},
        "from spark_kafka_sink import register",
        r"pyspark cannot be imported by .*: pip install --force-reinstall 'spark-kafka-sink\[spark\]'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_unusable_library_is_one_line_with_cause_and_fix(tmp_path: Path, case: str) -> None:
    modules, program, text = CASES[case]
    line = last_line(program, path=path_with(tmp_path, modules))
    assert re.fullmatch(rf"spark_kafka_sink\.errors\.InstallationError: \[INSTALLATION\] {text}", line)


IN_SPARK = """
import sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
"""


def test_in_a_process_of_sparks_a_library_that_py_files_cannot_carry_is_told_with_what_can(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "job.zip", "w") as packed:
        packed.writestr("cramjam/__init__.py", BROKEN)
    line = last_line(f"{IN_SPARK}sys.path.insert(0, {str(tmp_path / 'job.zip')!r})\n{PRODUCER}", path=path_with(tmp_path, {}))
    assert re.search(r"\): --py-files cannot carry compiled packages: use --archives. See https://\S+/deploying.html$", line)


def test_in_a_process_of_sparks_a_missing_library_is_told_with_pyspark_python(tmp_path: Path) -> None:
    line = last_line(f"{IN_SPARK}sys.modules['cramjam'] = None\n{PRODUCER}", path=path_with(tmp_path, {}))
    assert "): set PYSPARK_PYTHON to a Python that has it before Spark starts. See https://" in line


COMMANDS = ["check", "topics list", "transactions list --bootstrap-servers localhost:1"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_in_one_line_which_library_is_unusable(tmp_path: Path, command: str) -> None:
    program = f"from spark_kafka_sink.cli.main import main; main({command.split()})"
    done = run(program, path=path_with(tmp_path, {"pyarrow.py": BROKEN}))
    assert done.returncode == 1
    assert re.fullmatch(
        r"Error: \[INSTALLATION\] pyarrow cannot be imported by .*: pip install --force-reinstall pyarrow\n", done.stderr
    )


HIDDEN = """
import sys
sys.modules["pyspark"] = None
"""


@pytest.mark.parametrize("name", ["publish", "register", "foreach_batch", "partition_writer", "DeliveryMetrics"])
def test_a_missing_pyspark_is_one_line_with_the_extra(name: str) -> None:
    line = last_line(f"{HIDDEN}from spark_kafka_sink import {name}")
    assert line.endswith("[INSTALLATION] pyspark is not installed: pip install 'spark-kafka-sink[spark]'")


def test_the_embedded_broker_needs_no_pyarrow(tmp_path: Path) -> None:
    program = "from spark_kafka_sink.broker import EmbeddedBroker; b = EmbeddedBroker(); b.stop(); print('closed')"
    assert output_of(program, path=path_with(tmp_path, {"pyarrow.py": BROKEN})) == "closed\n"


def project() -> dict[str, object]:
    made: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return made


def extras() -> dict[str, list[Requirement]]:
    table = project()["optional-dependencies"]
    assert isinstance(table, dict)
    return {name: [Requirement(line) for line in lines] for name, lines in table.items()}


def lower_bounds() -> dict[str, str]:
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    every = [Requirement(line) for line in dependencies] + extras()["spark"]
    return {one.name: spec.version for one in every for spec in one.specifier if spec.operator == ">="}


def test_the_oldest_versions_that_are_taken_are_those_that_pip_installs() -> None:
    checked = {**installation.OLDEST, "pyspark": installation.OLDEST_PYSPARK}
    assert {name: lower_bounds()[name] for name in checked} == checked


@pytest.mark.parametrize("module", sorted(installation.EXTRAS))
def test_each_missing_extra_names_one_that_installs_the_library(module: str) -> None:
    distribution, extra = installation.EXTRAS[module]
    assert installation.not_installed(module) == f"{distribution} is not installed: pip install 'spark-kafka-sink[{extra}]'"
    # requests is an extra of google-auth's.
    expected = {"python-gssapi": "gssapi", "requests": "google-auth"}.get(distribution, distribution)
    assert expected in {requirement.name for requirement in extras()[extra]}


def test_all_has_each_extra_that_pip_can_install_without_a_compiler() -> None:
    (every,) = extras()["all"]
    assert every.extras == set(extras()) - {"all", "dev", "docs", "kerberos", "verify"}
