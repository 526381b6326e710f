"""Three brokers, drivers, and queries that are to reach one by the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.exactly_once.driver import Fleet
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.numbered_rows import NumberedRows, moved
from tests.kafka.brokers import Brokers

Moved = tuple[NumberedRows, Query]
MovedRows = Callable[..., Moved]

PARTITIONS = 4


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def three_brokers(_three_embedded_brokers: Brokers) -> Iterator[Brokers]:
    """`kafka3`, of tests that run on embedded brokers alone."""
    yield _three_embedded_brokers
    _three_embedded_brokers.heal()


@pytest.fixture
def moved_rows(tmp_path: Path) -> MovedRows:
    """`moved_rows(brokers, batches)`: numbered rows, and the query that moves them to a new topic of the brokers."""

    def make(brokers: Brokers, batches: int, **options: str) -> Moved:
        # pytest gives every test's folder another name; asking for new_topic would have each test run on both kinds of brokers.
        return moved(
            brokers, brokers.create_topic(f"{tmp_path.parent.name}-{tmp_path.name}", PARTITIONS), tmp_path, batches, **options
        )

    return make
