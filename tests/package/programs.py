"""Runs small programs in processes of their own, with some libraries broken, too old or missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(
    program: str, *arguments: str, python: str | Path = sys.executable, path: str = str(ROOT), timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs `python -c program` in the root folder.

    Args:
        program: the Python code.
        arguments: its sys.argv[1:].
        python: the interpreter.
        path: its PYTHONPATH.
        timeout: the seconds that it has.
    """
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    return subprocess.run(
        [str(python), "-c", program, *arguments],
        env={**environment, "PYTHONPATH": path} if path else environment,
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def output_of(program: str, *arguments: str, path: str = str(ROOT)) -> str:
    """Returns what a program prints, which has to succeed."""
    done = run(program, *arguments, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_line(program: str, *, path: str = str(ROOT)) -> str:
    """Returns the last line that a failing program writes to stderr: the error, whose text has to be one line."""
    done = run(program, path=path)
    assert done.returncode == 1, done.stdout
    lines = done.stderr.splitlines()
    assert lines[-2].startswith(" ")  # of the stack: the error takes one line
    assert "During handling" not in done.stderr
    assert "direct cause" not in done.stderr
    return lines[-1]


def path_with(folder: Path, modules: Mapping[str, str]) -> str:
    """Returns a PYTHONPATH on which modules are replaced.

    Args:
        folder: an empty folder for them.
        modules: the source of each by its path, such as "lz4/frame.py".
    """
    for name, source in modules.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        if file.parent != folder and name.count("/") == 1:
            (file.parent / "__init__.py").touch()
    return os.pathsep.join([str(folder), str(ROOT)])
