"""How large a Produce request may be, and what counts: the request without records, and batches after compression."""

from __future__ import annotations

from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec

# Frame size 4; API key 2, version 2, correlation id 4, length of client.id 2, tagged fields 1; length of the transactional id 3,
# acks 2, timeout 4, count of topics 5, tagged fields 1: 30 in total.
_REQUEST = 32
# Per topic: length of its name 3, count of partitions 5, tagged fields 1. Per partition: number 4, length of its records 5,
# tagged fields 1. 19 in total, plus the batch header.
_BATCH = 20 + HEADER_SIZE
_LONGEST_TOPIC = 249
# A request may be larger than max.request.size only if it is quickly over. Five requests of 4 MiB in flight would exceed
# request.timeout.ms (30 s) on a link of 0.6 MB/s, where five of 1 MiB take 8 s.
QUICK_MS = 1000
# Of the memory for records, so that a request is filled while others are in flight.
_SHARE_OF_MEMORY = 8
# The fraction of batch.size by which a batch may shrink so that one more fits into a request.
_SHRINKS_BY = 64


def request_overhead(client_id: str, transactional_id: str | None) -> int:
    return _REQUEST + len(client_id.encode()) + len((transactional_id or "").encode())


def batch_overhead(topic: str) -> int:
    """Returns the bytes that a batch takes besides its records, if it is the only one of its topic. Topic names are ASCII."""
    return _BATCH + len(topic)


def request_limit(config: ProducerConfig, latency_ms: int | None) -> int:
    """Returns the bytes that the next Produce request to a broker may have, which took `latency_ms` for the last (RequestLimits).
    A request costs the sender some 0.25 ms of Python whatever its size: 1 MB in requests of 1 MiB took 0.57 ms of CPU, and 0.45
    in requests of 4 MiB.
    """
    usual = min(config.max_request_size, config.produce_request_max_bytes)
    if latency_ms is None or latency_ms > QUICK_MS:
        return usual
    return max(usual, min(config.produce_request_max_bytes, config.buffer_memory // _SHARE_OF_MEMORY))


class RequestLimits:
    """How large the next Produce request to each broker may be. Used only by the sender thread."""

    __slots__ = ("_config", "_largest", "_latency_ms", "_takes_usual_only", "_usual")

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._usual = request_limit(config, latency_ms=None)
        self._latency_ms: dict[int, int] = {}  # by node; none since a lost connection
        self._largest: dict[int, int] = {}  # bytes of the largest request that was answered, by node
        self._takes_usual_only: set[int] = set()

    def of(self, node: int) -> int:
        if node in self._takes_usual_only:
            return self._usual
        return request_limit(self._config, self._latency_ms.get(node))

    def answered(self, node: int, size: int, latency_ms: int) -> None:
        """Notes a response to a request of `size` bytes.

        A smaller request shows that the broker is quick only in proportion: on a link of 0.2 MB/s one of 1 KB is answered within
        milliseconds, and large ones after it would exceed the timeout.
        """
        if latency_ms > QUICK_MS or latency_ms * self._usual <= QUICK_MS * size:
            self._latency_ms[node] = latency_ms
        self._largest[node] = max(size, self._largest.get(node, 0))

    def lost(self, node: int, size: int) -> None:
        """Notes a request of `size` bytes without a response.

        If it was larger than any that the broker has answered, by more than a batch or so, it may have been the reason. Gateways
        close the connection, and slow links time out. It would be lost again and again if larger requests did not end for good.
        """
        self._latency_ms.pop(node, None)
        if size > max(self._usual, self._largest.get(node, 0) * 9 // 8):
            self._takes_usual_only.add(node)


def batch_limit(config: ProducerConfig) -> int:
    """Returns the bytes of records at which a batch is full: batch.size, or what a request of max.request.size has room for.

    If only the overhead keeps n batches of batch.size from fitting into a request, each shrinks accordingly: with the defaults
    two of 512 KiB fit into a request of 1 MiB.
    """
    overhead = request_overhead(config.client_id, config.transactional_id)
    request = request_limit(config, latency_ms=None)
    batches = max(request // max(config.batch_size, 1), 1)
    share = max((request - overhead) // batches - batch_overhead("") - _LONGEST_TOPIC, 0)
    if batches == 1 or share >= config.batch_size - config.batch_size // _SHRINKS_BY:
        return min(config.batch_size, share)
    return config.batch_size


class CompressionRatios:
    """Compression ratios by topic, estimated from recent batches. Java's CompressionRatioEstimator.

    Used only by the sender thread.

    They allow filling a request with compressed batches: a request costs the same whatever its size. Ratios of topics
    differ by more than ten times. A topic's first batches count in full: by another topic's ratio more could be drained than a
    request can hold.
    """

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def size(self, batch: OpenBatch | SealedBatch) -> float:
        """Returns the bytes that a batch takes in a request; an estimate if it is not compressed yet."""
        topic = batch.queue.topic
        # OpenBatch is compared, because asking for a subclass of an abstract class runs Python code.
        sealed = batch.sealed if isinstance(batch, OpenBatch) else batch
        if sealed is not None:
            return sealed.size - HEADER_SIZE + batch_overhead(topic)
        ratio = self._ratios.get(topic)
        return (batch.size if ratio is None else batch.size * ratio) + batch_overhead(topic)

    def sealed(self, batch: SealedBatch) -> None:
        """Updates the ratio: up at once, down gradually, because a request smaller than possible does no harm."""
        if batch.codec is not Codec.NONE:
            topic, ratio = batch.queue.topic, (batch.size - HEADER_SIZE) / batch.raw_size
            self._ratios[topic] = max(ratio, 0.9 * self._ratios.get(topic, 1.0) + 0.1 * ratio)
