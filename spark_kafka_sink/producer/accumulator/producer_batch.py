"""A batch of one partition, open while records are added, sealed from its first send on; its outcome; its partition's queue."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.buffer_pool import BatchMemory, BufferPool
from spark_kafka_sink.producer.accumulator.sequences import (
    NO_PRODUCER,
    NO_SEQUENCE,
    NumberedBatch,
    PartitionSequences,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.lifecycle import callbacks
from spark_kafka_sink.records.batch_header import HEADER_SIZE, NO_TIMESTAMP, batch_header
from spark_kafka_sink.records.compression import Codec, compress
from spark_kafka_sink.reports.partition_reports import NO_OFFSET

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.rejected_batches import RowRun

logger = logging.getLogger(__name__)


class Thunk(Protocol):
    """Consecutive records of a batch whose outcome must be reported (Java's ProducerBatch.Thunk)."""

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
    """The outcome of one batch, shared by all its records (Java's ProduceRequestResult).

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


Buffer = bytes | bytearray | memoryview


@dataclass(slots=True, eq=False, repr=False)
class PartitionQueue:
    """Batches of one partition: retries in the order of their numbers, then unsent batches, the newest last.

    Guarded by the accumulator's lock, except `sequences`, which the sender thread owns.
    """

    topic: str
    partition: int
    leader: int | None
    retries: list[SealedBatch] = field(default_factory=list)
    batches: deque[OpenBatch] = field(default_factory=deque)
    open: OpenBatch | None = None  # the last of `batches` while records may still be added to it
    muted: bool = False  # a request is in flight and order must be kept without sequence numbers
    backing_off: bool = False
    back_off_until_ms: int = 0
    sequences: PartitionSequences | None = None

    def add_retry(self, batch: SealedBatch) -> None:
        """Adds a retry in the order of the numbers, because responses of several brokers may arrive in any order."""
        position = 0
        while position < len(self.retries) and self.retries[position].first_record < batch.first_record:
            position += 1
        self.retries.insert(position, batch)

    def head(self) -> OpenBatch | SealedBatch | None:
        return self.retries[0] if self.retries else self.batches[0] if self.batches else None

    def clear(self) -> None:
        self.retries.clear()
        self.batches.clear()
        self.open = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OpenBatch:
    """Encoded records to which more may be added.

    Belongs to one scope's tally. While `writing` is set, that scope's thread owns every field and the memory; otherwise the
    accumulator's lock guards them.
    """

    __slots__ = (
        "created_ms",
        "first_timestamp",
        "largest_record",
        "max_timestamp",
        "memory",
        "queue",
        "record_count",
        "result",
        "rows",
        "sealed",
        "size",
        "tally",
        "writing",
    )

    def __init__(self, queue: PartitionQueue, tally: Tally, created_ms: int, first_timestamp: int) -> None:
        self.queue = queue
        self.tally = tally
        self.created_ms = created_ms
        self.first_timestamp = first_timestamp
        self.max_timestamp = first_timestamp
        self.memory = BatchMemory()
        self.size = 0
        self.record_count = 0
        self.largest_record = 0  # bytes
        self.writing = False
        self.result: ProduceResult | None = None  # set if a caller wants the results of single records
        self.rows: list[RowRun] | None = None  # set if a caller wants the row numbers of rejected records
        # Compressed but not numbered: it was drained but did not fit into a request. No more records are added then.
        self.sealed: SealedBatch | None = None

    def attach(self, thunk: Thunk, first: int) -> None:
        if self.result is None:
            self.result = ProduceResult(self.queue.topic, self.queue.partition)
        self.result.attach(thunk, first)

    def failed(self, error: KafkaSinkError) -> None:
        if self.result is not None:
            self.result.failed(error)

    def added(self, size: int, count: int, max_timestamp: int, largest_record: int) -> None:
        """Counts whole records that are now in the memory."""
        # Called for each of 1,000 partitions per append: calls of max() took 0.1 us more.
        latest = max_timestamp if max_timestamp > self.max_timestamp else self.max_timestamp
        self.largest_record = largest_record if largest_record > self.largest_record else self.largest_record
        self.size, self.record_count, self.max_timestamp = self.size + size, self.record_count + count, latest


class SealedBatch(NumberedBatch):
    """A batch as it is sent, until it is acknowledged or failed. Owned by the sender thread.

    Its memory returns to the pool only after its request was answered or the connection closed, even if the batch expired
    meanwhile: in KAFKA-19012 a reused buffer was sent under another batch's header.
    """

    __slots__ = (
        "attempts",
        "codec",
        "done",
        "first_sent_ms",
        "first_timestamp",
        "header",
        "largest_record",
        "last_error",
        "level",
        "max_timestamp",
        "memory",
        "opened",
        "payload",
        "queue",
        "raw_size",
        "result",
        "size",
        "tally",
    )

    def __init__(self, batch: OpenBatch, codec: Codec, level: int) -> None:
        self.opened = batch
        self.queue = batch.queue
        self.tally: Tally | None = batch.tally  # None: its scope was discarded
        self.result = batch.result
        self.created_ms = batch.created_ms
        self.first_timestamp = batch.first_timestamp
        self.max_timestamp = batch.max_timestamp
        self.record_count = batch.record_count
        self.largest_record = batch.largest_record
        self.memory = batch.memory
        self.codec = codec
        self.level = level
        raw = batch.memory.pieces()
        self.raw_size = batch.size
        # Compressed here, in the sender's thread, although Java compresses in the task's. A row (JSON of 100 bytes) takes
        # 0.17 us in the task's thread; the sender's takes 0.20 us with lz4 and 0.31 with zstd. If the task's thread
        # compresses full batches, it takes 0.32 us with lz4 and 0.42 with zstd, and the sender's 0.06. The sum stays the
        # same, but the slower thread limits the rate: rows/s were 15 to 20 % lower, and 25 to 30 % if a row arrives every 0.6
        # us. With values of 1 KB the sender is the slower one, and rows/s were still 4 to 8 % lower. A task that compressed
        # only while it waits for memory was 15 to 24 % faster with them, but with random bytes it took 12 MB more memory
        # instead of freeing it: the blocks of a batch return only with their last user.
        self.payload: Sequence[Buffer] = raw if codec is Codec.NONE else [compress(codec, level, raw)]
        self.size = HEADER_SIZE + sum(map(len, self.payload))
        self.header = b""
        self.first_record = NO_SEQUENCE
        self.ordinal = 0
        self.attempts = 0
        self.sent_to = None
        self.first_sent_ms = 0
        self.last_error = ""
        self.on_wire = False
        self.known_not_stored = False
        self.done = False  # whether its tally knows the outcome

    def failed(self, error: KafkaSinkError) -> None:
        if self.result is not None:
            self.result.failed(error)

    def free_raw(self, pool: BufferPool) -> None:
        """Frees the raw bytes of a compressed batch. The pool then counts only the compressed ones, which suffice from now on."""
        if self.codec is Codec.NONE:
            return
        compressed = pool.overdraw(pool.chunks_for(self.size))
        for chunk in compressed:
            chunk.lend()
        self.memory.give_back(pool)
        self.memory = BatchMemory(compressed)

    def free(self, pool: BufferPool) -> None:
        """Frees the memory of a finished batch that is not in flight."""
        self.payload = ()
        self.memory.give_back(pool)

    def number(self, producer: ProducerIdAndEpoch, first_record: int) -> None:
        """Writes the header for this producer. The base sequence wraps to 0 after 2**31 - 1, like Java's incrementSequence."""
        self.first_record = first_record
        self.header = batch_header(
            record_count=self.record_count,
            first_timestamp=self.first_timestamp,
            max_timestamp=self.max_timestamp,
            codec=self.codec,
            payload=self.payload,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=NO_SEQUENCE if producer.producer_id == NO_PRODUCER.producer_id else first_record % 2**31,
            transactional=producer.transactional,
        )

    def buffers(self) -> list[Buffer]:
        return [self.header, *self.payload]
