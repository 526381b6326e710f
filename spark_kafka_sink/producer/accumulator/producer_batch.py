"""A batch of one partition in its two states: open while records still come, sealed from its first send on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.producer.accumulator.batch_memory import BatchMemory
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult, Thunk
from spark_kafka_sink.records.batch_header import HEADER_SIZE, batch_header
from spark_kafka_sink.records.compression import Codec, compress

if TYPE_CHECKING:
    from spark_kafka_sink.errors import KafkaSinkError
    from spark_kafka_sink.producer.accumulator.partition_queue import PartitionQueue
    from spark_kafka_sink.producer.accumulator.send_scope import SendScope

Buffer = bytes | bytearray | memoryview


class OpenBatch:
    """Encoded records that may still grow in number.

    It belongs to one send scope. While `writing` is set that scope's thread owns every field and the memory; otherwise the
    accumulator's lock guards them.
    """

    __slots__ = (
        "created_ms",
        "first_timestamp",
        "largest_record",
        "max_timestamp",
        "memory",
        "queue",
        "queued",
        "record_count",
        "result",
        "scope",
        "sealed",
        "size",
        "writing",
    )

    def __init__(self, queue: PartitionQueue, scope: SendScope, created_ms: int, first_timestamp: int) -> None:
        self.queue = queue
        self.scope = scope
        self.created_ms = created_ms
        self.first_timestamp = first_timestamp
        self.max_timestamp = first_timestamp
        self.memory = BatchMemory()
        self.size = 0
        self.record_count = 0
        self.largest_record = 0  # bytes
        self.queued = False
        self.writing = False
        self.result: ProduceResult | None = None  # where somebody wants to know of single records
        # Compressed, but not numbered: it was drained and found no room in a request. No more records come to it then.
        self.sealed: SealedBatch | None = None

    def attach(self, thunk: Thunk, first: int) -> None:
        """Tell `thunk`, whose records begin at record `first`, what becomes of the batch."""
        if self.result is None:
            self.result = ProduceResult(self.queue.topic, self.queue.partition)
        self.result.attach(thunk, first)

    def failed(self, error: KafkaSinkError) -> None:
        if self.result is not None:
            self.result.failed(error)

    def added(self, size: int, count: int, max_timestamp: int, largest_record: int) -> None:
        """So many bytes of whole records lie in the memory now."""
        # Once for each of 1,000 partitions an append: calls of max() took 0.1 us more.
        latest = max_timestamp if max_timestamp > self.max_timestamp else self.max_timestamp
        self.largest_record = largest_record if largest_record > self.largest_record else self.largest_record
        # In one go, without a call in between in which a signal's handler could raise.
        self.size, self.record_count, self.max_timestamp = self.size + size, self.record_count + count, latest

    def drop_unfinished(self) -> None:
        """An append failed: what it had written and not `added` goes."""
        self.memory.cut(self.size)


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """Who sends, as InitProducerId gave it; without idempotence NO_PRODUCER. transactional: in transactions."""

    producer_id: int
    epoch: int
    transactional: bool = False


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
NO_SEQUENCE = -1


class SealedBatch:
    """A batch as it goes over the wire, until it is acked or failed. Owned by the sender's thread.

    Its memory goes back to the pool only after the request that carries it was answered or its connection closed, also when
    the batch expired meanwhile: KAFKA-19012, where a reused buffer went out under another batch's header.
    """

    __slots__ = (
        "attempts",
        "codec",
        "created_ms",
        "done",
        "first_record",
        "first_sent_ms",
        "first_timestamp",
        "header",
        "largest_record",
        "last_error",
        "level",
        "max_timestamp",
        "memory",
        "on_wire",
        "opened",
        "ordinal",
        "payload",
        "queue",
        "raw_size",
        "record_count",
        "refused",
        "result",
        "scope",
        "sent_to",
        "size",
    )

    def __init__(self, batch: OpenBatch, codec: Codec, level: int) -> None:
        self.opened = batch
        self.queue = batch.queue
        self.scope: SendScope | None = batch.scope
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
        self.payload: Sequence[Buffer] = raw if codec is Codec.NONE else [compress(codec, level, raw)]
        self.size = HEADER_SIZE + sum(map(len, self.payload))
        self.header = b""
        self.first_record = NO_SEQUENCE  # records sent to the partition under its identity before this batch
        self.ordinal = 0  # batches numbered before this one under its identity
        self.attempts = 0
        self.sent_to: int | None = None  # the node of the last attempt
        self.first_sent_ms = 0
        self.last_error = ""
        self.on_wire = False
        self.refused = False  # the broker said that it did not store the last attempt
        self.done = False  # its scope has been told the outcome

    def failed(self, error: KafkaSinkError) -> None:
        if self.result is not None:
            self.result.failed(error)

    def free_raw(self, pool: BufferPool) -> None:
        """Of a compressed batch only the compressed bytes are needed from now on: the pool counts those instead."""
        if self.codec is Codec.NONE:
            return
        compressed = pool.overdraw(pool.chunks_for(self.size))
        for chunk in compressed:
            chunk.lend()
        self.memory.give_back(pool)
        self.memory = BatchMemory(compressed)

    def free(self, pool: BufferPool) -> None:
        """The batch is finished, and nothing of it on the wire."""
        self.payload = ()
        self.memory.give_back(pool)

    def number(self, identity: ProducerIdAndEpoch, first_record: int) -> None:
        """Write the header for this identity. The base sequence wraps to 0 after 2**31 - 1, as Java's incrementSequence does."""
        self.first_record = first_record
        self.header = batch_header(
            record_count=self.record_count,
            first_timestamp=self.first_timestamp,
            max_timestamp=self.max_timestamp,
            codec=self.codec,
            payload=self.payload,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=NO_SEQUENCE if identity == NO_PRODUCER else first_record % 2**31,
            transactional=identity.transactional,
        )

    def buffers(self) -> list[Buffer]:
        return [self.header, *self.payload]
