"""An archive whose Python is not the driver's, and one whose Python is not there."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from docs.pages import FOLDER
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.kafka.fixtures import ProxiedKafka
from tests.spark_cluster.application import Recipe
from tests.spark_yarn import every_way
from tests.spark_yarn.submitter import Submitter

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1200)]

DEADLINE_S = 900.0
OURS: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def others() -> Iterator[tuple[str, Path]]:
    """The Pythons of other minor versions that are installed here."""
    folders = [*map(Path, ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")), *Path.home().glob(".pyenv/versions/*/bin")]
    for python in sorted(
        each for folder in folders for each in folder.glob("python3.*") if re.fullmatch(r"python3\.\d+", each.name)
    ):
        if python.name != f"python{OURS}":
            done = subprocess.run([python, "-c", "pass"], capture_output=True, timeout=60, check=False)
            if done.returncode == 0:
                yield python.name.removeprefix("python"), python


def said_with(submitter: Submitter, broker: ProxiedKafka, folder: Path, name: str, python: str) -> str:
    """Returns what the user sees if the archive's Python is a link to this one. The driver has the right one."""
    (folder / "kafka-sink").symlink_to(submitter.recipe.folder / "kafka-sink")
    (folder / "environment").symlink_to("kafka-sink")
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, python
        archive.addfile(link)
    rows = NumberedRows(folder / "rows", batches=1).write()
    plan = {
        "rows": str(rows.folder),
        "keys": rows.keys,
        "sink": {"kafka.bootstrap.servers": broker.cluster.bootstrap_servers},
        "topics": {"batch at-least-once": broker.cluster.create_topic(f"yarn-{name}", 1)},
        "checkpoints": str(folder / "checkpoints"),
        "result": str(folder / "result.json"),
    }
    with submitter.with_recipe(Recipe(folder)).submit(name, "client", every_way, plan, {"spark.task.maxFailures": "1"}) as spark:
        return spark.join_failed(DEADLINE_S)


def page() -> str:
    return (FOLDER / "troubleshooting.md").read_text(encoding="utf-8")


def test_a_link_to_a_python_that_is_not_there_is_in_the_docs(submitter: Submitter, broker: ProxiedKafka, tmp_path: Path) -> None:
    said = said_with(submitter, broker, tmp_path, "missing-python", "/opt/python-that-is-not-there/bin/python3")
    text = 'Cannot run program "./environment/bin/python"'
    assert text in said
    assert f"### {text}" in page()


def test_another_minor_version_is_an_error_with_both(submitter: Submitter, broker: ProxiedKafka, tmp_path: Path) -> None:
    other, python = next(others(), ("", Path()))
    if not other:
        pytest.skip(f"no Python but {OURS} is installed")
    said = said_with(submitter, broker, tmp_path, "other-python", str(python))
    assert f"[PYTHON_VERSION_MISMATCH] Python in worker has different version: {other} than that in driver: {OURS}" in said
    assert "### PYTHON_VERSION_MISMATCH" in page()
