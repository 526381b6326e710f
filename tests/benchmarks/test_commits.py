"""Micro-batches committed in a loop, on a broker that keeps the log on disk as Kafka does."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cells import CELLS, QUICK
from benchmarks.commits import COLD_READS, TRANSACTIONS, WORKERS, commits
from benchmarks.environment import Topics, embedded_broker
from benchmarks.results import COLD_LOG_READ, COMMIT, LOG_READ

BATCHES = 20


def test_each_commit_is_timed_with_its_look_at_the_log_and_what_is_left_is_counted() -> None:
    (cell,) = (each for each in CELLS if each.name == "micro_batches")
    with embedded_broker() as broker:
        runs = commits(cell, replace(QUICK, rows_asked=BATCHES), Topics(broker.kafka, broker.folder))
    assert set(runs) == set(cell.contenders) == {COMMIT, LOG_READ, COLD_LOG_READ}
    assert len(runs[COMMIT]) == len(runs[LOG_READ]) == BATCHES
    assert all(0 < look.seconds < commit.seconds for look, commit in zip(runs[LOG_READ], runs[COMMIT], strict=True))
    assert len(runs[COLD_LOG_READ]) == COLD_READS
    assert all(read.seconds > 0 for read in runs[COLD_LOG_READ])
    left = runs[COMMIT][-1]
    assert left.ids == left.most_ids == WORKERS * TRANSACTIONS
    assert left.log_bytes > BATCHES * 100
