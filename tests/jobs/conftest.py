"""The fixtures of the jobs: a process that runs them, and rows in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.demo_events import write_events
from tests.jobs.job_process import JobProcess

ROWS = 600


@pytest.fixture(scope="session")
def jobs() -> Iterator[JobProcess]:
    process = JobProcess()
    yield process
    process.stop()


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A Parquet folder of ROWS events with keys, headers and timestamps, and every kind of null."""
    folder = tmp_path / "events"
    write_events(folder, ROWS, 2)
    return folder


@pytest.fixture
def fewer_events(events: Path, tmp_path: Path) -> Path:
    """The same without the last."""
    folder = tmp_path / "fewer"
    folder.mkdir()
    table: pa.Table = pq.read_table(events)
    pq.write_table(table.slice(0, ROWS - 1), folder / "events.parquet")
    return folder
