"""A batch of one partition: open while records are added, sealed from its first send on; and the partition's queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.buffer_pool import BatchMemory, BufferPool
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult, Thunk
from spark_kafka_sink.producer.accumulator.row_origins import RowRun
from spark_kafka_sink.producer.accumulator.sequences import (
    NO_PRODUCER,
    NO_SEQUENCE,
    NumberedBatch,
    PartitionSequences,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.records.batch_header import HEADER_SIZE, batch_header
from spark_kafka_sink.records.compression import Codec, compress

Buffer = bytes | bytearray | memoryview


class PartitionQueue:
    """Batches of one partition: retries in the order of their numbers, then unsent batches, the newest last.

    Guarded by the accumulator's lock, except `sequences`, which the sender thread owns.
    """

    __slots__ = (
        "back_off_until_ms",
        "backing_off",
        "batches",
        "leader",
        "muted",
        "open",
        "partition",
        "retries",
        "sequences",
        "topic",
    )

    def __init__(self, topic: str, partition: int, leader: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.leader = leader
        self.retries: list[SealedBatch] = []
        self.batches: deque[OpenBatch] = deque()
        self.open: OpenBatch | None = None  # the last of `batches` while records may still be added to it
        self.muted = False  # a request is in flight and order must be kept without sequence numbers
        self.backing_off = False
        self.back_off_until_ms = 0
        self.sequences: PartitionSequences | None = None

    def add_retry(self, batch: SealedBatch) -> None:
        """Adds a retry in the order of the numbers, because responses of several brokers may arrive in any order."""
        position = 0
        while position < len(self.retries) and self.retries[position].first_record < batch.first_record:
            position += 1
        self.retries.insert(position, batch)

    def head(self) -> OpenBatch | SealedBatch | None:
        """The next batch to send."""
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
        """Attaches `thunk`, whose records begin at record `first`."""
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
