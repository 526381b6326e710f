"""The environment that a user of a cluster packs."""

from __future__ import annotations

import pytest

from tests.spark_cluster.application import Recipe


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """What docs/deploying.md packs."""
    made = Recipe(tmp_path_factory.mktemp("archive"))
    made.pack()
    return made
