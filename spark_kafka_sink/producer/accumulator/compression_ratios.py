"""How large batches will be once they are compressed, as the last ones of their topic were: Java's CompressionRatioEstimator."""

from __future__ import annotations

from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.request_size import batch_overhead
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec


class CompressionRatios:
    """Bytes of compressed records for each byte before, by topic. Used by the sender's thread only.

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
