"""What the commit log may forget of batch jobs, and when."""

from __future__ import annotations

import pytest

from spark_kafka_sink.exactly_once.commit_log import LoggedRecord, old_jobs
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State

NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("state", "hours", "is_old"),
    [
        (State.COMPLETE, 47, False),
        (State.COMPLETE, 49, True),
        (State.CLOSED, 0.9, False),
        (State.CLOSED, 1.1, True),
        (State.ABORTED, 1.1, True),
        (State.PREPARED, 10_000, False),
        (State.REPLAY, 10_000, False),
    ],
)
def test_that_a_job_is_complete_is_remembered_for_two_days(state: State, hours: float, *, is_old: bool) -> None:
    job, query = (LoggedRecord(CommitRecord(name, 0, state, "r", 5), 0, int(NOW_MS - hours * HOUR_MS)) for name in ("job-1", "q"))
    assert old_jobs([job, query], "prefix", NOW_MS) == ([job.record] if is_old else [])
