from __future__ import annotations

from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_kafka_sink.spark.progress import progress_bar


class Refusing:
    """A context of a cluster that lets a program follow no jobs."""

    def __init__(self, refused: str) -> None:
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        if name == self._refused:
            raise Py4JError(f"Method {name} is not whitelisted")
        return lambda *_: None


class Session:
    def __init__(self, context: object) -> None:
        self._sc = context


@pytest.mark.parametrize("refused", ["addJobTag", "_jsc"])
def test_a_job_runs_without_a_bar_where_progress_cannot_be_followed(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(cast("SparkSession", Session(Refusing(refused))), show=True):
        ran = True
    assert ran
    assert capsys.readouterr().err == ""
