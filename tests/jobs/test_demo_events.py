"""The demo's events: the same each time, with every kind of null in them."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.demo_events import write_events

ROWS = 4_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("demo") / "events"
    write_events(folder, ROWS, 3)
    assert len(list(folder.iterdir())) == 3
    return pq.read_table(folder)


def test_they_are_the_same_in_every_run(events: pa.Table) -> None:
    with_numbers = events.set_column(3, "timestamp", events["timestamp"].cast(pa.int64()))
    content = hashlib.sha256(repr(with_numbers.to_pydict()).encode()).hexdigest()

    assert content == "32390f7cbfb1138bf237c96ad2b4a24480978d0d95df001bb09b6cb37d780a98"


def test_nulls_are_where_kafka_allows_them(events: pa.Table) -> None:
    headers = events["headers"].combine_chunks()

    assert {name: events[name].null_count for name in ("key", "value", "headers", "timestamp")} == {
        "key": ROWS // 100,
        "value": ROWS // 200,
        "headers": ROWS // 10,
        "timestamp": 0,
    }
    assert 0 < headers.flatten().field("value").null_count <= ROWS // 50
    assert headers.flatten().field("key").null_count == 0
