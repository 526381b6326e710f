"""A query's transactional ids are its own, and each belongs to one attempt of one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from spark_kafka_sink.errors import BatchAbortedError
from spark_kafka_sink.exactly_once import micro_batch as module
from spark_kafka_sink.exactly_once.micro_batch import MAX_JOBS, FirstTransactions, MicroBatch, Slots, TransactionalIds
from tests.every import every
from tests.limits import UNMEASURED, costs_at_most

IDS = TransactionalIds("sink", "5f0e-1")


def test_it_owns_the_ids_of_its_tasks() -> None:
    assert IDS.for_slot("0af9", 12) == "sink.5f0e-1.0af9.12"
    assert IDS.owns(IDS.for_slot("0af9", 12))


@every(
    "other",
    [
        IDS.commit_log,
        TransactionalIds("sink", "5f0e-11").for_slot("0af9", 0),
        TransactionalIds("sink2", "5f0e-1").for_slot("0af9", 0),
        TransactionalIds("a.sink", "5f0e-1").for_slot("0af9", 0),
        "sink.5f0e-1",
        "sink.5f0e-1.0af9",
        "sink.5f0e-1.0af9.",
        "sink.5f0e-1.0af9.1.2",
        "sink.5f0e-1.0AF9.1",
        "sink.5f0e-1..1",
        "",
    ],
)
def test_it_owns_no_other(other: str) -> None:
    assert not IDS.owns(other)


# Slots

QUERY = TransactionalIds("prefix", "query")


def in_child(ask: Callable[[], str]) -> str:
    """What `ask` says in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, ask().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        found = told.read()
    os.waitpid(child, 0)
    return found


def slot_of(transactional_id: str) -> str:
    return transactional_id.rpartition(".")[2]


def test_a_batch_that_asks_again_after_a_later_one_takes_no_slot_of_that() -> None:
    slots = Slots()
    assert [slot_of(slots.take(QUERY, batch)) for batch in (1, 1, 2, 1, 2, 3, 2, 3)] == ["0", "1", "0", "2", "1", "0", "2", "1"]


@pytest.mark.slow
def test_the_ids_of_many_tasks_are_found_without_looking_at_all_slots_for_each() -> None:
    def ask() -> None:
        slots = Slots()
        first, second = ({slots.take(QUERY, batch) for _ in range(20_000)} for batch in (1, 2))
        assert first == second

    costs_at_most(ask, megabytes=UNMEASURED, seconds=5)  # 0.2 s; 30 s if each looks at all


def test_a_later_batch_uses_the_ids_again_and_no_more_of_them() -> None:
    slots = Slots()
    first = {slots.take(QUERY, 0) for _ in range(3)}
    for batch in range(1, 100):
        assert {slots.take(QUERY, batch) for _ in range(3)} == first


def test_another_process_has_other_ids_and_so_has_a_forked_one() -> None:
    slots = Slots()
    taken = slots.take(QUERY, 0)
    theirs = in_child(lambda: slots.take(QUERY, 1))
    assert theirs != taken
    assert slot_of(theirs) == slot_of(taken) == "0"
    assert Slots().take(QUERY, 0) != taken


def test_a_child_that_python_was_not_told_of_notices_it_by_its_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots()
    taken = slots.take(QUERY, 0)
    monkeypatch.setattr(module, "os", SimpleNamespace(getpid=lambda: -1, urandom=os.urandom))
    assert slots.take(QUERY, 1) != taken


def test_a_query_that_was_forgotten_gets_a_new_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUERIES", 2)
    slots = Slots()
    taken = slots.take(QUERY, 0)
    for job in range(2):
        slots.take(TransactionalIds("prefix", f"job-{job}"), 0)
    assert slots.take(QUERY, 0) != taken
    assert slots.take(QUERY, 1) != taken


# A batch job that cannot be committed any more is not written on

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
