"""Makes a virtual environment of this checkout from one with the same dependencies that is kept outside of it.

    python tests/environment.py .venv constraints.txt

Installing PySpark and 150 other packages takes two minutes of both cores, and a copy with hard links three seconds. The kept
environment is named after everything that decides on its contents: requirements, constraints and Python. This module needs the
standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# As tests/kafka/jars.py, which cannot be imported without the environment.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-kafka-sink" / "environments"
MADE_FROM = "made-from"
"""The file in an environment with the folder that it is a copy of. Tests start Spark's Java from there (tests/conftest.py)."""

# Not sys.executable: in an activated .venv that is the interpreter of the folder that is removed and made again.
PYTHON = getattr(sys, "_base_executable", sys.executable)

UNUSED_S = 30 * 24 * 3600
"""An environment that no checkout was made from for this long is removed."""

_SHOWN = re.compile(r"^ *(Downloading \S+ \([\d.]+ MB\)|Building wheel for \S+|Installing collected)")


def main(folder: Path, constraints: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = CACHE / _digest(constraints)
    # A second `make` waits for the first and uses what it has made, in the cache and in the checkout.
    with (CACHE / f"{kept.name}.lock").open("w") as lock, (CACHE / "checkout.lock").open("w") as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / "complete").exists():
            _make(kept, folder.name, constraints)
        os.utime(kept)
        fcntl.flock(other, fcntl.LOCK_EX)
        if not _is_made_from(kept, made_from := folder / MADE_FROM):
            _copy(kept, folder)
            _pip(folder, "install", "--no-deps", "-e", str(ROOT))
            made_from.write_text(str(kept))
    for old in CACHE.glob("*/"):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            shutil.rmtree(old, ignore_errors=True)


def _is_made_from(kept: Path, made_from: Path) -> bool:
    """The programs and plug-ins that pip installs are in pyproject.toml, too, which is newer once it has changed."""
    if not made_from.exists() or made_from.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        return False
    return made_from.read_text() == str(kept)


def _digest(constraints: Path) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    facts = [project["dependencies"], project["optional-dependencies"], constraints.read_text(), sys.version]
    facts += [shutil.which("krb5-config") is not None]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _make(kept: Path, name: str, constraints: Path) -> None:
    print(f"Setting up {name}: downloads Spark and the tools, up to 620 MB, 1 to 5 minutes", file=sys.stderr, flush=True)
    shutil.rmtree(kept, ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", str(kept)], check=True)
    _pip(kept, "install", "-e", f"{ROOT}[dev]", "-c", str(constraints))
    _pip(kept, "uninstall", "-y", "spark-kafka-sink")
    # gssapi has no wheels for Linux, so it is compiled if the Kerberos headers (libkrb5-dev) exist.
    if shutil.which("krb5-config") is not None:
        try:
            _pip(kept, "install", "gssapi", "-c", str(constraints))
        except subprocess.CalledProcessError:
            print("python-gssapi could not be installed: the tests of Kerberos are skipped", file=sys.stderr)
    subprocess.run([str(kept / "bin" / "python"), str(ROOT / "tests" / "compiled_pyspark.py")], check=True)
    (kept / "complete").touch()


def _pip(environment: Path, *command: str) -> None:
    """Shows a line of pip's output for each large download and for each step that takes long, and its errors."""
    pip = [str(environment / "bin" / "python"), "-m", "pip", *command]
    with subprocess.Popen(pip, stdout=subprocess.PIPE, text=True, errors="replace") as running:
        for line in running.stdout or ():
            if (shown := _SHOWN.match(line)) is not None:
                print(f"  {shown[1]}", flush=True)
    if running.returncode != 0:
        raise subprocess.CalledProcessError(running.returncode, pip)


def _copy(kept: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(folder)], check=True)
    for each in ("lib", "share", "etc"):
        if (kept / each).exists():
            shutil.copytree(kept / each, folder / each, symlinks=True, copy_function=_link, dirs_exist_ok=True)
    for script in (kept / "bin").iterdir():
        copy = folder / "bin" / script.name
        if script.is_file() and not copy.exists():
            shutil.copy2(script, copy)
            if (text := script.read_bytes()).startswith(b"#!"):
                copy.write_bytes(text.replace(os.fsencode(kept), os.fsencode(folder.resolve()), 1))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (subprocess.CalledProcessError, OSError) as error:
        sys.exit(f"{sys.argv[1]} could not be set up: {error}")
