"""Copies the jars of a pom.xml from Maven to a cache outside the repository, once per content of that file.

A pom with `<artifactItems>` names archives, which are unpacked: a program that is published as one, with its jars inside.

`python -m tests.kafka.jars POM...` does this before the tests, because pytest would hide the progress messages. Without a
POM it fetches every version of Kafka that tests run on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KAFKA_POM = Path(__file__).with_name("pom.xml")
DOWNLOAD_DEADLINE_S = 900


class JarsUnavailableError(RuntimeError):
    """The jars are not in the cache, and Maven could not fetch them."""


def cache_dir() -> Path:
    """Returns the folder of downloads: this project's folder in XDG_CACHE_HOME, which defaults to ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-kafka-sink"


def jars(pom: Path = KAFKA_POM, *, what: str | None = None) -> Path:
    """Returns the folder with every jar that `pom` needs.

    what: is said on stderr when they must be downloaded first; None: the pom's <description>.
    """
    pom = pom.resolve()
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    name = pom.parent.name if pom.stem == "pom" else pom.stem
    folder = cache_dir() / f"{name}-{key}"
    if not folder.is_dir():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():  # another process may have copied them while this one waited
                _copy(pom, folder, what or _description(pom))
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _description(pom: Path) -> str:
    found = re.search(r"<description>\s*(.+?)\s*</description>", pom.read_text())
    return found[1] if found is not None else f"the jars of {pom.parent.name}/{pom.name}"


def _copy(pom: Path, folder: Path, what: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError(f"Maven (mvn) is not on the PATH, and {folder} does not hold the jars of {pom.name} yet")
    print(f"Downloading {what} with Maven into {folder}", file=sys.stderr, flush=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _run_maven(maven, pom, partial)
        partial.rename(folder)  # atomic: a folder of this name is always complete
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_maven(maven: str, pom: Path, target: Path) -> None:
    verb = "unpack" if "<artifactItems>" in pom.read_text() else "copy-dependencies"
    goal = [maven, "-B", "-q", "-f", str(pom), f"dependency:{verb}", f"-DoutputDirectory={target}"]
    try:
        done = subprocess.run(
            goal, cwd=target, capture_output=True, text=True, errors="replace", timeout=DOWNLOAD_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarsUnavailableError(f"Maven did not copy the jars of {pom} within {DOWNLOAD_DEADLINE_S} s") from None
    if done.returncode != 0 or not any(target.rglob("*.jar")):
        # Of twenty lines the first error says what is missing, the others how to ask for more lines.
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        said = next((line for line in lines if line.startswith("[ERROR]")), lines[-1])
        raise JarsUnavailableError(f"Maven could not copy the jars of {pom} (exit code {done.returncode}): {said}")


def main(poms: list[str]) -> None:
    """Fetches the jars of `poms`, or of every version of Kafka if `poms` is empty. Exits with a line if one is not there.

    With KAFKA_BOOTSTRAP_SERVERS it only says so.
    """
    all_versions = [KAFKA_POM, *sorted(KAFKA_POM.parent.glob("poms/*.xml"))]
    for pom in map(Path, poms) if poms else all_versions:
        try:
            jars(pom)
        except JarsUnavailableError as error:
            said = f"The tests need {_description(pom)}: {error}"
            if "KAFKA_BOOTSTRAP_SERVERS" not in os.environ:
                sys.exit(said)
            print(said, file=sys.stderr)  # most tests run on the brokers that are named


if __name__ == "__main__":
    main(sys.argv[1:])
