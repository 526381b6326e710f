"""The broker of the fault tests, which is told what to answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.mock_cluster import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """One node, with a topic `t` of one partition."""
    with MockCluster() as made:
        made.topic()
        yield made
