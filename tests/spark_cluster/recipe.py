"""The commands of docs/deploying.md for an archive, run as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.docs.snippets import blocks
from tests.faults.exactly_once.standalone import ADDRESS, CHECKOUT, SPARK_HOME
from tests.kafka.java import java

PAGE = "deploying.md"
MARK = "venv-pack --prefix"
SUBMIT = "spark-submit "
BUILD_DEADLINE_S = 600.0


class Recipe:
    """The recipe of the page, with the wheel of this checkout as the package.

    folder: the working directory of the user, in which `pack` makes the environment and its archive.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (block,) = (each for each in blocks(PAGE) if MARK in each.source)
        before, mark, after = block.source.partition("\n\n")
        assert mark, f"docs/{PAGE}: the block no longer packs first and submits then"
        self._pack, self._submit = before, after

    def pack(self) -> None:
        """Builds the wheel, and runs the first half of the block."""
        wheels = self.folder / "dist"
        _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(wheels), str(CHECKOUT)], self.folder, os.environ)
        (wheel,) = wheels.glob("*.whl")
        script = _replaced(self._pack, {"python3.11 -m venv": f"{sys.executable} -m venv", " spark-kafka-sink ": f" {wheel} "})
        # The versions that are tested. The page's reader gets the newest.
        constraints = {"PIP_CONSTRAINT": str(CHECKOUT / "constraints.txt")}
        _run(["bash", "-e", "-c", script], self.folder, {**user_environment(), **constraints})

    def submit(self, master: str, arguments: Sequence[str], log: Path, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Runs the second half of the block, with the program's arguments at its end and more settings of Spark's.

        Returns the process, which leads a session of its own. log: takes what Spark prints.
        """
        conf = log.with_suffix(".conf")
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        script = _replaced(self._submit, {"spark://master:7077": master, " job.py": " " + " ".join(arguments)})
        with log.open("wb") as out:
            return subprocess.Popen(
                ["bash", "-e", "-c", script.replace(SUBMIT, f"exec {SUBMIT}")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**user_environment(), "SPARK_CONF_DIR": str(conf)},
                start_new_session=True,
            )


def user_environment() -> dict[str, str]:
    """A shell that has Spark on its path, and knows nothing of this checkout."""
    ours = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    path = os.pathsep.join([str(SPARK_HOME / "bin"), str(Path(java()).parent), os.environ["PATH"]])
    return {**inherited, "PATH": path, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": ADDRESS}


def _replaced(script: str, by: Mapping[str, str]) -> str:
    for old, new in by.items():
        assert script.count(old) == 1, f"docs/{PAGE}: {old!r} is not once in the block of the archive:\n{script}"
        script = script.replace(old, new)
    return script


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, timeout=BUILD_DEADLINE_S, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
