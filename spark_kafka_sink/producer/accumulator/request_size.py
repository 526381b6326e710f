"""Sizes against max.request.size: of a Produce request besides its records, and of batches once they are compressed."""

from __future__ import annotations

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec

# The frame's size 4; API key 2, version 2, correlation id 4, length of client.id 2, tagged fields 1; length of the transactional
# id 3, acks 2, timeout 4, count of topics 5, tagged fields 1: 30 in all.
_REQUEST = 32
# Of a topic: length of its name 3, count of partitions 5, tagged fields 1. Of a partition: number 4, length of its records 5,
# tagged fields 1. 19 in all, and the batch's own header.
_BATCH = 20 + HEADER_SIZE
_LONGEST_TOPIC = 249
# As a part of batch.size, how much smaller a batch may become so that one more of them fits into a request.
_SHRINKS_BY = 64


def request_overhead(client_id: str, transactional_id: str | None) -> int:
    """Bytes of a request without batches."""
    return _REQUEST + len(client_id.encode()) + len((transactional_id or "").encode())


def batch_overhead(topic: str) -> int:
    """Bytes that a batch takes besides its records, as if it were the only one of its topic. Topic names are ASCII."""
    return _BATCH + len(topic)


def batch_limit(config: ProducerConfig) -> int:
    """Bytes of records at which a batch is full: batch.size, or what a request has room for.

    Where a request would take n batches of batch.size but for what is not records, each becomes that much smaller: with the
    defaults two of 512 KiB go in a request of 1 MiB.
    """
    overhead = request_overhead(config.client_id, config.transactional_id)
    batches = max(config.max_request_size // max(config.batch_size, 1), 1)
    share = max((config.max_request_size - overhead) // batches - batch_overhead("") - _LONGEST_TOPIC, 0)
    if batches == 1 or share >= config.batch_size - config.batch_size // _SHRINKS_BY:
        return min(config.batch_size, share)
    return config.batch_size


class CompressionRatios:
    """Bytes of compressed records for each byte before, by topic, as the last batches had it: Java's CompressionRatioEstimator.

    Used by the sender's thread only.

    So a request is filled with compressed batches: it costs the same 0.5 ms, be they large or small. Topics differ by more than
    ten times. The first batches of one count in full: by another topic's ratio more would be drained than a request can take.
    """

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def size(self, batch: OpenBatch | SealedBatch) -> float:
        """Bytes that a batch takes in a request, all told; about, if it is still to be compressed."""
        topic = batch.queue.topic
        sealed = batch if isinstance(batch, SealedBatch) else batch.sealed
        if sealed is not None:
            return sealed.size - HEADER_SIZE + batch_overhead(topic)
        return batch.size * self._ratios.get(topic, 1.0) + batch_overhead(topic)

    def sealed(self, batch: SealedBatch) -> None:
        """Up at once, down by and by: a request that turns out smaller than it could be harms nobody."""
        if batch.codec is not Codec.NONE:
            topic, ratio = batch.queue.topic, (batch.size - HEADER_SIZE) / batch.raw_size
            self._ratios[topic] = max(ratio, 0.9 * self._ratios.get(topic, 1.0) + 0.1 * ratio)
