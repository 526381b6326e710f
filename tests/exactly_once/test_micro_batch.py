"""A batch job that cannot be committed any more is not written on."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import BatchAbortedError
from spark_kafka_sink.exactly_once.micro_batch import MAX_JOBS, FirstTransactions, MicroBatch

TIMEOUT_MS = 900_000
MARGIN_S = 60.0


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def first(clock: Clock) -> FirstTransactions:
    return FirstTransactions(clock)


def test_a_job_may_go_on_for_as_long_as_its_first_transaction_may_be_open(first: FirstTransactions, clock: Clock) -> None:
    job, begun = MicroBatch.of_new_job(), clock.now
    first.prepared(job, begun)
    clock.now = begun + 500
    first.prepared(job, clock.now)
    clock.now = begun + TIMEOUT_MS / 1000 + MARGIN_S
    first.check(job, TIMEOUT_MS)
    clock.now += 1
    with pytest.raises(BatchAbortedError) as caught:
        first.check(job, TIMEOUT_MS)
    assert str(caught.value).startswith(f"[BATCH_ABORTED] {job}: ")
    assert "began 961 s ago" in str(caught.value)
    assert "kafka.transaction.timeout.ms (900 s)" in str(caught.value)
    assert (caught.value.facts["query_id"], caught.value.facts["batch"]) == (job.query_id, 0)


def test_with_a_short_time_out_a_quarter_of_it_is_added(first: FirstTransactions, clock: Clock) -> None:
    job = MicroBatch.of_new_job()
    first.prepared(job, clock.now)
    clock.now += 10
    first.check(job, 8_000)
    clock.now += 0.1
    with pytest.raises(BatchAbortedError):
        first.check(job, 8_000)


def test_a_job_that_has_prepared_nothing_here_yet_may_begin_at_any_time(first: FirstTransactions, clock: Clock) -> None:
    first.prepared(MicroBatch.of_new_job(), clock.now)
    clock.now += 100_000
    first.check(MicroBatch.of_new_job(), TIMEOUT_MS)


def test_a_micro_batch_that_is_written_again_after_a_long_time_is_no_old_job(first: FirstTransactions, clock: Clock) -> None:
    batch = MicroBatch("query", 7)
    first.prepared(batch, clock.now)
    clock.now += 100_000
    first.check(batch, TIMEOUT_MS)


def test_only_the_last_jobs_are_remembered(first: FirstTransactions, clock: Clock) -> None:
    jobs = [MicroBatch.of_new_job() for _ in range(MAX_JOBS + 1)]
    for job in jobs:
        first.prepared(job, clock.now)
    clock.now += 100_000
    first.check(jobs[0], TIMEOUT_MS)
    with pytest.raises(BatchAbortedError):
        first.check(jobs[1], TIMEOUT_MS)
