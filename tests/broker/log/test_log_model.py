"""A log in a folder, one in memory and a model of both go the same way, whatever is done to them: appends, transactions, records
deleted, restarts and kills."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from tests.broker.log.logs import NOW, UNCOMMITTED, batch, committed_values, open_log, stored

pytestmark = pytest.mark.slow

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=60, retention_ms=-1)
small_values = st.lists(st.binary(max_size=30), min_size=1, max_size=4)
producers = st.integers(1, 3)


class ModelLog:
    """(offset, value, producer) of each record; None is a marker's value. `open`: producer -> first offset."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[tuple[int, bytes | None, int]] = []
        self.end = 0
        self.open: dict[int, int] = {}
        self.aborted: set[int] = set()

    def append(self, rows: list[bytes], producer: int = 0) -> None:
        if producer:
            self.open.setdefault(producer, self.end)
        for row in rows:
            self.records.append((self.end, row, producer))
            self.end += 1

    def finish(self, producer: int, *, commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is not None and not commit:
            self.aborted |= {offset for offset, row, owner in self.records if owner == producer and offset >= first}
        self.records.append((self.end, None, producer))
        self.end += 1

    @property
    def stable(self) -> int:
        return max(min(self.open.values(), default=self.end), self.start)

    def without_records(self) -> set[int]:
        """Producers of whom there are markers, but no records any more."""
        kept = [(owner, row) for offset, row, owner in self.records if offset >= self.start and owner]
        return {owner for owner, _ in kept} - {owner for owner, row in kept if row is not None}

    def visible(self) -> list[bytes | None]:
        return [row for offset, row, _ in self.records if offset >= self.start and row is not None]

    def committed(self) -> list[bytes | None]:
        shown = range(self.start, self.stable)
        return [row for offset, row, _ in self.records if offset in shown and row is not None and offset not in self.aborted]


class LogMachine(RuleBasedStateMachine):
    """Timestamps are the offsets' own, so that a time finds its record."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "topic-0"
        self.model = ModelLog()
        self.file_log = open_log(self.folder, CONFIG)
        self.memory_log = open_log(None, CONFIG)
        self.sequences = dict.fromkeys((1, 2, 3), 0)
        self.epochs = dict.fromkeys((1, 2, 3), 0)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.file_log.release()
            shutil.rmtree(self.root)

    @property
    def logs(self) -> tuple[UnifiedLog, UnifiedLog]:
        return self.file_log, self.memory_log

    @rule(rows=small_values)
    def append(self, rows: list[bytes]) -> None:
        for log in self.logs:
            assert log.append_as_leader(batch(*rows, timestamp=NOW + self.model.end), 0).base_offset == self.model.end
        self.model.append(rows)

    @rule(rows=small_values, producer=producers)
    def append_in_transaction(self, rows: list[bytes], producer: int) -> None:
        fields = {"producer_id": producer, "producer_epoch": self.epochs[producer], "base_sequence": self.sequences[producer]}
        for log in self.logs:
            log.append_as_leader(batch(*rows, timestamp=NOW + self.model.end, transactional=True, **fields), 0)
        self.sequences[producer] += len(rows)
        self.model.append(rows, producer)

    @rule(producer=producers, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        for log in self.logs:
            log.append_control(EndTransactionMarker(producer, self.epochs[producer], commit, 0), 0)
        self.model.finish(producer, commit=commit)

    @rule()
    def roll(self) -> None:
        for log in self.logs:
            log.roll()

    @precondition(lambda self: self.model.end > self.model.start)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        # Not of open transactions: a log that is read again knows nothing of what lies before its start, nor does Kafka's.
        start = self.model.start + round((self.model.stable - self.model.start) * share)
        assert {log.delete_records_before(start) for log in self.logs} == {start}
        self.model.start = start

    @rule()
    def restart(self) -> None:
        self.file_log.close()
        self._reopen()

    @rule()
    def kill(self) -> None:
        self.file_log.release()
        self._reopen()

    def _reopen(self) -> None:
        self.file_log = open_log(self.folder, CONFIG)
        # Of a marker alone a log learns an epoch and no sequence number, in Kafka too: such a producer begins another epoch.
        for producer in self.model.without_records():
            self.epochs[producer] += 1
            self.sequences[producer] = 0

    @rule()
    def keep(self) -> None:
        for log in self.logs:
            log.enforce_retention(NOW)

    @invariant()
    def same_offsets(self) -> None:
        for log in self.logs:
            assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)
            assert log.last_stable_offset == self.model.stable

    @invariant()
    def same_records(self) -> None:
        for log in self.logs:
            read = [record for one in stored(log) if not one.is_control for record in one.records()]
            assert [record.value for record in read if record.offset >= log.log_start_offset] == self.model.visible()
            assert committed_values(log) == self.model.committed()

    @invariant()
    def same_bytes(self) -> None:
        """Only markers differ: each has the time at which it was written, and the clock stands."""
        start = self.model.start
        reads = [b"".join(log.read(start, 1_000_000, UNCOMMITTED).records) for log in self.logs]
        assert reads[0] == reads[1]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
