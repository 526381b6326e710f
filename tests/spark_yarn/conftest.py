"""One YARN cluster for all tests of this folder, and the archive that they send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.fixtures import ProxiedKafka
from tests.spark_cluster.application import Recipe
from tests.spark_cluster.conftest import recipe
from tests.spark_yarn.submitter import Submitter
from tests.spark_yarn.yarn import YarnCluster

__all__ = ["recipe"]


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with YarnCluster(tmp_path_factory.mktemp("yarn")) as made:
        yield made


@pytest.fixture(scope="session")
def submitter(yarn: YarnCluster, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(yarn, recipe, tmp_path_factory.mktemp("submitted"))


@pytest.fixture(scope="session")
def broker(_real_broker_behind_proxy: ProxiedKafka) -> ProxiedKafka:
    """A real broker that a test may slow down."""
    return _real_broker_behind_proxy
