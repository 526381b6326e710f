"""Classes of Spark in the form that Java maps into memory: a driver that finds them there starts in half the time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pyspark

from tests.kafka.jars import cache_dir, locked
from tests.kafka.java import java

CHECKOUT = Path(__file__).parents[3]
TRAINING_DEADLINE_S = 180.0
_SPARK = Path(pyspark.__file__).parent


def java_options() -> str:
    """Returns the options of a JVM of Spark that lives for seconds or minutes.

    The compiler that makes long runs fast costs such a one more than it saves.
    """
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile={class_archive()}"


@cache
def class_archive() -> Path:
    """Made on first use, in about half a minute, and kept beside Kafka's jars: one for each place where pyspark is installed."""
    name = f"spark-classes-{_digest(str(_SPARK))}"
    archive = cache_dir() / f"{name}-{_digest(_java_version(), *_jars())}.jsa"
    if not archive.exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with locked(cache_dir() / f"{name}.lock"):
            if not archive.exists():  # another process may have made it while this one waited
                _make(archive, cache_dir().glob(f"{name}-*"))
    return archive


def _make(archive: Path, stale: Iterable[Path]) -> None:
    for each in stale:
        each.unlink()
    made = archive.with_suffix(f".{os.getpid()}")
    _run_training(made)
    made.rename(archive)


def _jars() -> list[str]:
    """What Java compares: with other sizes or times it warns on stdout, and uses nothing of the archive."""
    found = (_SPARK / "jars").glob("*.jar")
    return sorted(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in found)


def _digest(*facts: str) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _run_training(made: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(CHECKOUT), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.exactly_once.class_archive", str(made)],
        cwd=tempfile.gettempdir(),  # Spark makes folders where it runs
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TRAINING_DEADLINE_S,
        check=False,
        text=True,
    )
    if not made.exists():
        raise RuntimeError(f"Java wrote no archive of Spark's classes:\n{done.stdout[-2000:]}")


def _java_version() -> str:
    said = subprocess.run([java(), "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True).stderr
    (found,) = (line.partition("=")[2].strip() for line in said.splitlines() if line.strip().startswith("java.vm.version ="))
    return found


def train(archive: str) -> None:
    """Do with Spark about what the driver program does, and have Java write down what it loaded."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        spark = builder.config(
            "spark.driver.extraJavaOptions", f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive}"
        ).getOrCreate()
        (Path(folder) / "in").mkdir()
        (Path(folder) / "in" / "rows.txt").write_text("1\n2\n")
        rows = spark.readStream.format("text").load(f"{folder}/in").selectExpr("cast(value as bigint) % 2 as key", "value")
        rows = rows.mapInArrow(lambda batches: batches, "key long, value string").repartition(2, "key")
        query = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/cp").trigger(availableNow=True).start()
        query.awaitTermination()
        spark.stop()


if __name__ == "__main__":
    train(sys.argv[1])
