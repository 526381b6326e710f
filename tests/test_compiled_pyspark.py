"""The compiled files that `make setup` adds to Spark's archive of Python sources."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.compiled_pyspark import compile_archive

PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import package.module as m; print(m.VALUE, m.__cached__, m.where())"
SOURCE = "VALUE = 1\n\ndef where():\n    return where.__code__.co_filename\n"


def test_a_process_imports_the_compiled_file_and_finds_its_source(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("package/__init__.py", "")
        file.writestr("package/module.py", SOURCE)
        file.writestr("package/tests/test_module.py", SOURCE)
    assert compile_archive(archive)
    with zipfile.ZipFile(archive) as file:
        added = {name for name in file.namelist() if name.endswith(".pyc")}
    assert added == {"package/__init__.pyc", "package/module.pyc"}
    assert list(tmp_path.iterdir()) == [archive]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(archive)], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert done == f"1 {archive}/package/module.pyc {archive}/package/module.py\n"


def test_a_second_set_up_changes_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("module.py", SOURCE)
    compile_archive(archive)
    before = archive.read_bytes()
    assert not compile_archive(archive)
    assert archive.read_bytes() == before
