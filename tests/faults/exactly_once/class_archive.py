"""Classes of Spark in the form that Java maps into memory: a driver that finds them there starts in half the time."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from tests.kafka.class_archive import QUICK_START, archive, digest, trained
from tests.kafka.java import java

TRAINING_DEADLINE_S = 900.0


def java_options() -> str:
    """Returns the options of a JVM of Spark that lives for seconds or minutes."""
    return " ".join((*QUICK_START, f"-XX:SharedArchiveFile={class_archive()}"))


@cache
def class_archive() -> Path:
    """Made on first use, in about half a minute, and kept beside Kafka's jars: one for each place where pyspark is installed."""
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return archive(f"spark-classes-{digest(str(spark))}", (spark / "jars").glob("*.jar"), java(), _make)


def _make(made: Path) -> None:
    spark = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    trained("tests.faults.exactly_once.class_archive", made, TRAINING_DEADLINE_S, **spark)


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
