"""What all jobs share: their command line, and a Spark session made from their settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.sql import SparkSession

import jobs
from jobs.outcome import HELP
from jobs.settings import Settings


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A parsed command line."""

    settings: Path
    overrides: Sequence[str]
    verbose: bool


def parse(program: str, description: str, example: str, arguments: Sequence[str] | None) -> CommandLine:
    """Ends the process with exit code 2 when the command line is wrong, and with 0 after `--help`, as argparse does."""
    parser = argparse.ArgumentParser(
        prog=f"spark-submit jobs/{program}.py",
        description=description,
        epilog=f"example:\n  spark-submit --master 'local[*]' jobs/{program}.py {example}\n\n{HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", type=Path, help="settings file (TOML); conf/ has one for each use, with comments")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="set or replace a setting, for example sink.topic=events; may be given again",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print the whole stack trace of an error")
    found = parser.parse_args(arguments)
    return CommandLine(found.settings, found.set, found.verbose)


LOG_LEVEL: Final = "spark.log.level"


def _logs_at_info() -> bool:
    """Returns whether Spark would log at INFO without a setting that asks for it, as spark-submit does."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, so Spark starts like a shell: at WARN
        return False
    SparkContext._ensure_initialized()
    return not SparkConf().contains(LOG_LEVEL)


def spark_session(settings: Settings, name: str) -> SparkSession:
    """Returns a session with the settings of [spark], which win over those of spark-submit. Spark logs from WARN on, unless
    `spark.log.level` is set: at INFO a job's few lines of result are lost among hundreds.
    """
    # This package is installed nowhere, so what of it runs in Spark's workers travels with the task.
    cloudpickle.register_pickle_by_value(jobs)  # type: ignore[no-untyped-call]
    builder = SparkSession.builder.appName(name)
    if _logs_at_info():
        builder = builder.config(LOG_LEVEL, "WARN")
    for key, value in settings.texts("spark").items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
