"""A Spark session for the contenders of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.session import registered_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with registered_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
