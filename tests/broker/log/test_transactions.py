"""Transactions in one log: what is stable, what was aborted, who may end them; the same after a restart and a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import LogAppendInfo, LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.log.logs import COMMITTED, UNCOMMITTED, batch, committed_values, failing, open_log, opened


def write(log: UnifiedLog, producer: int, sequence: int, value: bytes = b"v", epoch: int = 0) -> LogAppendInfo:
    data = batch(value, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    return log.append_as_leader(data, 0)


def end(log: UnifiedLog, producer: int, *, commit: bool, epoch: int = 0, coordinator: int = 0) -> LogAppendInfo:
    return log.append_control(EndTransactionMarker(producer, epoch, commit, coordinator), 0)


@pytest.mark.parametrize("segment_bytes", [10_000, 200])
def test_aborted_transactions_are_told_to_who_reads_their_records(folder: Path | None, segment_bytes: int) -> None:
    with opened(folder, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=50)) as log:
        write(log, 1, 0, b"a0")
        write(log, 2, 0, b"c0")
        write(log, 1, 1, b"a1")
        end(log, 1, commit=False)  # offset 3
        end(log, 2, commit=True)
        write(log, 1, 2, b"c1")
        end(log, 1, commit=True)
        write(log, 3, 0, b"a2")
        end(log, 3, commit=False)
        assert committed_values(log) == [b"c0", b"c1"]
        assert log.read(0, 1, UNCOMMITTED).aborted_transactions is None
        first = log.read(0, 1, COMMITTED).aborted_transactions
        assert first is not None
        assert first[0] == (1, 0)
        assert log.read(4, 10_000, COMMITTED).aborted_transactions in ([(3, 7)], [])


def test_a_coordinator_of_an_older_epoch_is_fenced(folder: Path | None) -> None:
    with opened(folder) as log:
        write(log, 1, 0)
        end(log, 1, commit=True, coordinator=5)
        write(log, 1, 1)
        with failing(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
            end(log, 1, commit=True, coordinator=4)
        end(log, 1, commit=True, coordinator=5)


def test_an_end_of_an_older_epoch_is_fenced_and_one_of_a_newer_begins_it(folder: Path | None) -> None:
    with opened(folder) as log:
        write(log, 1, 0, epoch=2)
        with failing(ErrorCode.INVALID_PRODUCER_EPOCH):
            end(log, 1, commit=True, epoch=1)
        end(log, 1, commit=True, epoch=3)  # transaction version 2: every transaction has an epoch of its own
        with failing(ErrorCode.INVALID_PRODUCER_EPOCH):
            write(log, 1, 1, epoch=2)
        with failing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            write(log, 1, 1, epoch=3)
        write(log, 1, 0, epoch=3)


def test_a_first_record_needs_the_coordinators_word(folder: Path | None) -> None:
    data = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    with opened(folder, verify_transactions=True) as log:
        with failing(ErrorCode.INVALID_TXN_STATE, "not part of an ongoing"):
            log.append_as_leader(data, 0)
        stale = log.maybe_start_transaction_verification(1, 0, 0, supports_epoch_bump=True)
        end(log, 1, commit=False)
        with failing(ErrorCode.INVALID_TXN_STATE):  # the coordinator's word was about what has ended
            log.append_as_leader(data, 0, guard=stale)
        guard = log.maybe_start_transaction_verification(1, 0, 0, supports_epoch_bump=True)
        assert guard is not None
        assert guard is not stale
        log.append_as_leader(data, 0, guard=guard)
        assert log.maybe_start_transaction_verification(1, 1, 0, supports_epoch_bump=True) is None
        write(log, 1, 1)
        with failing(ErrorCode.INVALID_PRODUCER_EPOCH):
            log.maybe_start_transaction_verification(1, 0, -1, supports_epoch_bump=True)


def test_the_lowest_number_seen_is_the_one_to_wait_for(folder: Path | None) -> None:
    with opened(folder, verify_transactions=True) as log:
        for sequence in (5, 3, 4):
            guard = log.maybe_start_transaction_verification(1, sequence, 0, supports_epoch_bump=False)
        for sequence in (5, 4):
            data = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
            with failing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "earliest seen"):
                log.append_as_leader(data, 0, guard=guard)
        data = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=3, transactional=True)
        log.append_as_leader(data, 0, guard=guard)


def test_with_epochs_that_grow_a_new_producer_begins_at_0(folder: Path | None) -> None:
    with opened(folder, verify_transactions=True) as log:
        guard = log.maybe_start_transaction_verification(1, 3, 0, supports_epoch_bump=True)
        data = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=3, transactional=True)
        with failing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "new producer"):
            log.append_as_leader(data, 0, guard=guard)


def restarted(log: UnifiedLog, folder: Path) -> None:
    log.close()


def killed(log: UnifiedLog, folder: Path) -> None:
    log.release()


@pytest.mark.parametrize("stop", [restarted, killed])
@pytest.mark.parametrize("rolls", [(), (1,), (1, 3, 4)])
def test_open_and_aborted_transactions_outlive_the_broker(
    on_disk: Path, stop: Callable[[UnifiedLog, Path], None], rolls: tuple[int, ...]
) -> None:
    log = open_log(on_disk)
    steps: list[Callable[[], object]] = [
        lambda: write(log, 1, 0, b"aborted"),
        lambda: write(log, 2, 0, b"committed"),
        lambda: end(log, 1, commit=False, coordinator=8),
        lambda: end(log, 2, commit=True),
        lambda: write(log, 3, 0, b"open"),
    ]
    for i, step in enumerate(steps):
        if i in rolls:
            log.roll()
        step()
    for _ in range(2):
        stop(log, on_disk)
        log = open_log(on_disk)
        assert (log.last_stable_offset, log.log_end_offset) == (4, 5)
        assert committed_values(log) == [b"committed"]
        begun = {each.producer_id: each.current_txn_start_offset for each in log.active_producers()}
        assert (begun[3], begun[1]) == (4, -1)
    with failing(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        end(log, 1, commit=True, coordinator=7)
    end(log, 3, commit=True)
    assert committed_values(log) == [b"committed", b"open"]
    log.close()
