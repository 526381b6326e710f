"""What all jobs share: their command line, and a Spark session made from their settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark import cloudpickle
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


def spark_session(settings: Settings, name: str) -> SparkSession:
    """A session with the settings of [spark]; these win over those of spark-submit."""
    # This package is installed nowhere, so what of it runs in Spark's workers travels with the task.
    cloudpickle.register_pickle_by_value(jobs)  # type: ignore[no-untyped-call]
    builder = SparkSession.builder.appName(name)
    for key, value in settings.texts("spark").items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
