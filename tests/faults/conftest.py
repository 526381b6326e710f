"""Brokers that do wrong on purpose, and producers that lose little time over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.mock_cluster import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """One node, with a topic `t` of one partition. After the test: no sequence number stood for two different batches."""
    with MockCluster() as made:
        made.topic()
        yield made
    check_numbers(made)


@pytest.fixture
def cluster2() -> Iterator[MockCluster]:
    """Two nodes; node 0 leads the one partition of `t`."""
    with MockCluster(2) as made:
        made.topic()
        yield made
    check_numbers(made)


def check_numbers(cluster: MockCluster) -> None:
    """But for a batch that was refused before its numbers were looked at: its parts have them."""
    seen: dict[tuple[str, int, int, int, int], tuple[bytes | None, ...]] = {}
    unseen = {id(received) for received in (*cluster.too_large, *cluster.rejected)}
    for received in cluster.received:
        if received.batch.producer_id >= 0 and id(received) not in unseen:
            numbers = (received.topic, received.partition, received.batch.producer_id, *received.numbers)
            assert seen.setdefault(numbers, received.values) == received.values, f"{numbers} was used twice"
