"""Which batches of a producer a log takes: numbers in order, epochs that grow, what was sent twice stored once; from a folder
also after a restart, and after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.log.log_types import LogAppendInfo, LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.log.logs import NOW, Clock, batch, failing, open_log, opened, stored

DAY = 86_400_000


def send(log: UnifiedLog, sequence: int, *, epoch: int = 0, producer: int = 9, count: int = 1, **more: bool) -> LogAppendInfo:
    data = batch(*[b"v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **more)
    return log.append_as_leader(data, 0)


def test_who_was_idle_for_a_day_is_forgotten_unless_a_transaction_is_open(folder: Path | None) -> None:
    clock = Clock()
    with opened(folder, LogConfig(retention_ms=-1), clock=clock) as log:
        send(log, 0)
        send(log, 0, producer=10, transactional=True)
        log.enforce_retention(NOW + DAY - 1)
        assert len(log.active_producers()) == 2
        log.enforce_retention(NOW + DAY)
        assert [producer.producer_id for producer in log.active_producers()] == [10]
        send(log, 55)


def restarted(log: UnifiedLog, folder: Path) -> UnifiedLog:
    log.close()
    return open_log(folder)


def killed(log: UnifiedLog, folder: Path) -> UnifiedLog:
    log.release()
    return open_log(folder)


AGAIN = pytest.mark.parametrize("again", [restarted, killed])
Again = Callable[[UnifiedLog, Path], UnifiedLog]


@AGAIN
@pytest.mark.parametrize("rolled_after", [None, 2, 6])
def test_five_batches_an_epoch_and_a_transaction_outlive_the_broker(
    on_disk: Path, again: Again, rolled_after: int | None
) -> None:
    log = open_log(on_disk)
    for i in range(7):
        if i == rolled_after:
            log.roll()
        send(log, i, epoch=5, transactional=True)
    log = again(again(log, on_disk), on_disk)
    try:
        for i in range(2, 7):
            info = send(log, i, epoch=5, transactional=True)
            assert (info.duplicate, info.base_offset) == (True, i)
        with failing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            send(log, 1, epoch=5, transactional=True)
        with failing(ErrorCode.INVALID_PRODUCER_EPOCH):
            send(log, 7, epoch=4)
        assert (log.last_stable_offset, log.log_end_offset) == (0, 7)
    finally:
        log.close()


class Model:
    """One producer in one partition, as it is described rather than as it is done."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.stored: list[tuple[int, int]] = []  # first number and count of each batch of this epoch

    def expect(self, epoch: int, sequence: int, count: int) -> ErrorCode | int | None:
        """The code, None for a new batch, or which batch from the end it is a duplicate of."""
        if self.epoch is not None and epoch == self.epoch and (sequence, count) in self.stored[-5:]:
            return self.stored[-5:][::-1].index((sequence, count)) + 1
        if self.epoch is not None and epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        due = None if self.epoch is None else 0 if epoch != self.epoch else (sum(self.stored[-1])) % 2**31
        if due is not None and sequence != due:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch != self.epoch:
            self.epoch, self.stored = epoch, []
        self.stored.append((sequence, count))
        return None


@settings(max_examples=120, deadline=None)
@given(
    sends=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["next", "again", "gap", "start"]), st.integers(1, 3), st.booleans()),
        max_size=25,
    ),
    start=st.sampled_from([0, 5, 2**31 - 3]),
)
def test_a_log_agrees_with_the_model_of_a_producer(
    sends: list[tuple[int, str, int, bool]], start: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = Model()
    folder = tmp_path_factory.mktemp("log") / "topic-0"
    log = open_log(folder)
    offsets: list[int] = []
    try:
        for epoch, kind, records, restart in sends:
            if restart:
                log = killed(log, folder)
            sequence, count = _sequence(model, kind, start), records
            if kind == "again" and model.stored:
                sequence, count = model.stored[-1 - len(offsets) % min(6, len(model.stored))]
            expected = model.expect(epoch, sequence, count)
            if isinstance(expected, ErrorCode):
                with failing(expected):
                    send(log, sequence, epoch=epoch, count=count)
            else:
                info = send(log, sequence, epoch=epoch, count=count)
                assert info.duplicate == (expected is not None)
                if expected is None:
                    offsets.append(info.base_offset)
                assert info.base_offset == offsets[-(expected or 1)]
        assert [one.base_offset for one in stored(log)] == offsets
    finally:
        log.close()


def _sequence(model: Model, kind: str, start: int) -> int:
    if not model.stored or kind == "start":
        return start if model.epoch is None else 0
    due = sum(model.stored[-1]) % 2**31
    return due if kind != "gap" else (due + 1) % 2**31
