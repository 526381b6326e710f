"""Classes in the form that Java maps into memory: a program that finds its own there starts in about two thirds of the time.

Kafka's are those of the default version. A broker that lives for a test takes 1.3 s of processor time with them until it is
ready, 2.4 s without; StorageTool takes 0.6 s instead of 1.2.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from tests.kafka.jars import cache_dir, jars, locked

CHECKOUT = Path(__file__).parents[2]
TRAINING_DEADLINE_S = 900.0
# The options of a JVM that lives for seconds: the compiler that makes long runs fast costs it more than it saves.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_MAKING = "TESTS_MAKE_A_CLASS_ARCHIVE"
"""The variable of the process that makes Kafka's archive, which uses none."""


def kafka_options(java: str) -> list[str]:
    """Returns the options with which a JVM of the default version finds its classes; those of QUICK_START belong to them."""
    # Where the archive does not match what is started, Java would say so on stdout, and uses nothing of it.
    return [] if _MAKING in os.environ else [f"-XX:SharedArchiveFile={_of_kafka(java)}", "-Xlog:disable"]


@cache
def _of_kafka(java: str) -> Path:
    """Made on first use, in about ten seconds, and kept beside Kafka's jars."""
    folder = jars()
    return archive(f"{folder.name}-classes", folder.glob("*.jar"), java, _train)


def archive(name: str, jar_files: Iterable[Path], java: str, make: Callable[[Path], None]) -> Path:
    """Returns the archive of a program, which `make` writes if there is none for these jars and this Java.

    name: what distinguishes it from other programs' archives; those of other jars or another Java are removed.
    """
    # What Java compares: with other sizes or times it uses nothing of the archive.
    facts = sorted(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jar_files)
    found = cache_dir() / f"{name}-{digest(_java_version(java), *facts)}.jsa"
    if not found.exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with locked(cache_dir() / f"{name}.lock"):
            if not found.exists():  # another process may have made it while this one waited
                for stale in cache_dir().glob(f"{name}-*"):
                    stale.unlink()
                made = found.with_suffix(f".{os.getpid()}")
                make(made)
                made.rename(found)
    return found


def trained(module: str, made: Path, deadline_s: float, **environment: str) -> None:
    """Has `python -m module` run the program, whose Java writes the archive `made` when it ends."""
    done = subprocess.run(
        [sys.executable, "-m", module, str(made)],
        cwd=tempfile.gettempdir(),  # Spark makes folders where it runs
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=deadline_s,
        check=False,
        text=True,
    )
    if not made.exists():
        raise RuntimeError(f"Java wrote no archive of classes for {module}:\n{done.stdout[-2000:]}")


def digest(*facts: str) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _java_version(java: str) -> str:
    said = subprocess.run([java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True).stderr
    (found,) = (line.partition("=")[2].strip() for line in said.splitlines() if line.strip().startswith("java.vm.version ="))
    return found


def _train(made: Path) -> None:
    trained("tests.kafka.class_archive", made, TRAINING_DEADLINE_S, **{_MAKING: "1"})


def train(made: str) -> None:
    """Run a broker that ends by itself, unlike those of tests, and so writes down what it has loaded."""
    import psutil

    from tests.kafka.cluster import KafkaCluster

    with KafkaCluster(java_options=(*QUICK_START, f"-XX:ArchiveClassesAtExit={made}")) as cluster:
        cluster.create_topic("topic", 1)
        broker = psutil.Process(cluster.pid(1))
        broker.terminate()
        broker.wait(60)


if __name__ == "__main__":
    train(sys.argv[1])
