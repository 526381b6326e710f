"""The outcome of a batch, for those who wait for single records of it (Java's ProduceRequestResult and ProducerBatch.Thunk)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.lifecycle import callbacks
from spark_kafka_sink.producer.partition_reports import NO_OFFSET
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP

logger = logging.getLogger(__name__)


class Thunk(Protocol):
    """Records, one after the other in a batch, and whoever wants to know what becomes of them."""

    count: int

    def assigned(self, result: ProduceResult, first: int) -> None:
        """They lie in `result`'s batch now, from its record `first` on."""
        ...

    def completed(self, result: ProduceResult, first: int) -> None:
        """The batch was acked or failed, as `result` says."""
        ...

    def split(self, count: int) -> tuple[Thunk, Thunk]:
        """The first `count` of them, and the others."""
        ...


class ProduceResult:
    """The outcome of one batch, shared by all of its records.

    The batch's owner (see OpenBatch, SealedBatch) attaches and completes. Any thread may read `done`, and the rest after it.
    """

    __slots__ = ("_done", "_parts", "_thunks", "base_offset", "error", "log_append_time", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.error: KafkaSinkError | None = None
        self._thunks: list[tuple[int, Thunk]] = []  # each with the place of its first record, in order
        self._parts: list[ProduceResult] = []  # what its batch was split into
        self._done = False

    @property
    def done(self) -> bool:
        """Whether it was acked or failed, and everybody was told; after a split, whether all parts were."""
        return self._done or (bool(self._parts) and all(part.done for part in self._parts))

    def attach(self, thunk: Thunk, first: int) -> None:
        """Tell `thunk`, whose records begin at record `first` of the batch."""
        self._thunks.append((first, thunk))  # first: an interrupt must not leave anybody assigned and never told
        thunk.assigned(self, first)

    def acked(self, base_offset: int, log_append_time: int) -> None:
        """base_offset: of the batch's first record, negative if not known. log_append_time: ms, negative for CreateTime."""
        self.base_offset = max(base_offset, NO_OFFSET)
        self.log_append_time = max(log_append_time, NO_TIMESTAMP)
        self._complete()

    def failed(self, error: KafkaSinkError) -> None:
        self.error = error
        self._complete()

    def split(self, counts: Iterable[int]) -> list[ProduceResult]:
        """The results of the batches that this one's records go to instead: so many in each, in order; all of them in the end."""
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
        """Records with these errors fail now; returned is the result of the batch that the others of `record_count` go to."""
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
        """Callbacks run before anybody who waits goes on, as in ProducerBatch.completeFutureAndFireCallbacks."""
        thunks, self._thunks = self._thunks, []
        try:
            with callbacks:
                for first, thunk in thunks:
                    self._tell(thunk, first)
        finally:
            self._done = True

    def _tell(self, thunk: Thunk, first: int) -> None:
        try:
            thunk.completed(self, first)
        except Exception:
            logger.exception("topic %s partition %d: a delivery callback failed", self.topic, self.partition)


def _move(
    thunks: list[tuple[int, Thunk]], start: int, stop: int, part: ProduceResult, at_place: int = 0
) -> list[tuple[int, Thunk]]:
    """Attach to `part`, from its record `at_place` on, what belongs to records `start` to `stop`; returned is what is left."""
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
