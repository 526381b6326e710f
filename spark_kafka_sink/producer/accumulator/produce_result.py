"""The outcome of a batch, for those who wait for its single records (Java's ProduceRequestResult and ProducerBatch.Thunk)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.base.lifecycle import callbacks
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP
from spark_kafka_sink.reports.partition_reports import NO_OFFSET

logger = logging.getLogger(__name__)


class Thunk(Protocol):
    """Consecutive records of a batch whose outcome must be reported."""

    count: int

    def assigned(self, result: ProduceResult, first: int) -> None:
        """Called when the records are in `result`'s batch, from its record `first` on."""
        ...

    def completed(self, result: ProduceResult, first: int) -> None:
        """Called when the batch was acknowledged or failed, as `result` says."""
        ...

    def settled(self) -> None:
        """Called after that, when `ProduceResult.done` is True."""
        ...

    def split(self, count: int) -> tuple[Thunk, Thunk]:
        """Returns the first `count` records, and the others."""
        ...


class ProduceResult:
    """The outcome of one batch, shared by all its records.

    The batch's owner (see OpenBatch, SealedBatch) attaches and completes. Any thread may read `done`, and the rest after it.
    """

    __slots__ = ("_done", "_parts", "_thunks", "base_offset", "error", "log_append_time", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.error: KafkaSinkError | None = None
        self._thunks: list[tuple[int, Thunk]] = []  # each with the index of its first record, in order
        self._parts: list[ProduceResult] = []  # results of the batches that its batch was split into
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the batch was acknowledged or failed and everyone was notified; after a split, whether all parts were."""
        return self._done or (bool(self._parts) and all(part.done for part in self._parts))

    def attach(self, thunk: Thunk, first: int) -> None:
        """Attaches `thunk`, whose records begin at record `first` of the batch."""
        self._thunks.append((first, thunk))
        thunk.assigned(self, first)

    def acked(self, base_offset: int, log_append_time: int) -> None:
        """Completes an acknowledged batch. base_offset: negative if not known. log_append_time: ms, negative for CreateTime."""
        self.base_offset = max(base_offset, NO_OFFSET)
        self.log_append_time = max(log_append_time, NO_TIMESTAMP)
        self._complete()

    def failed(self, error: KafkaSinkError) -> None:
        self.error = error
        self._complete()

    def split(self, counts: Iterable[int]) -> list[ProduceResult]:
        """Returns the results of the batches that replace this one, each with that many of its records in order."""
        left = self._thunks
        self._thunks = []
        start = 0
        for count in counts:
            part = ProduceResult(self.topic, self.partition)
            left = _move(left, start, start + count, part)
            start += count
            self._parts.append(part)
        return list(self._parts)

    def without(self, errors: Mapping[int, KafkaSinkError], record_count: int) -> ProduceResult:
        """Fails the records with errors, and returns the result of the batch with the remaining ones of `record_count`."""
        left, self._thunks = self._thunks, []
        others = ProduceResult(self.topic, self.partition)
        failed = [ProduceResult(self.topic, self.partition) for _ in errors]
        start = moved = 0
        for row, result in zip(errors, failed, strict=True):
            left = _move(left, start, row, others, moved)
            left = _move(left, row, row + 1, result)
            moved += row - start
            start = row + 1
        _move(left, start, record_count, others, moved)
        self._parts = [others]
        for result, error in zip(failed, errors.values(), strict=True):
            result.failed(error)
        return others

    def _complete(self) -> None:
        """Runs callbacks before waiting threads continue, like ProducerBatch.completeFutureAndFireCallbacks."""
        thunks, self._thunks = self._thunks, []
        with callbacks:
            try:
                for first, thunk in thunks:
                    self._tell(thunk, first)
            finally:
                self._done = True
            for _, thunk in thunks:
                thunk.settled()

    def _tell(self, thunk: Thunk, first: int) -> None:
        try:
            thunk.completed(self, first)
        except Exception:
            logger.exception("topic %s partition %d: a delivery callback raised an exception", self.topic, self.partition)


def _move(
    thunks: list[tuple[int, Thunk]], start: int, stop: int, part: ProduceResult, at_place: int = 0
) -> list[tuple[int, Thunk]]:
    """Attaches thunks of records `start` to `stop` to `part`, from its record `at_place` on. Returns the remaining thunks."""
    left = []
    for at, thunk in thunks:
        first, rest = at, thunk
        if first < stop < first + rest.count:
            head, tail = rest.split(stop - first)
            part.attach(head, at_place + first - start)
            left.append((stop, tail))
        elif first < stop:
            part.attach(rest, at_place + first - start)
        else:
            left.append((first, rest))
    return left
