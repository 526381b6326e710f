"""The report of what a send scope delivered, as plain numbers that pickle, merge, and mean the same everywhere."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from spark_kafka_sink.producer.partition_reports import PartitionReports

# Bucket i of a latency histogram counts batches acked in less than 2**i ms and not less than 2**(i-1); the last is open.
LATENCY_BUCKETS = 24

# The counts of a DeliveryReport that come from commits, not from tasks.
COMMIT_COUNTS = ("commits", "transactions_committed", "transactions_aborted", "prepare_to_visible_ms", "commit_ms")


def latency_bucket(milliseconds: float) -> int:
    """The histogram's bucket for one ack latency."""
    return min(max(int(milliseconds), 0).bit_length(), LATENCY_BUCKETS - 1)


# Unpacked: more topics than Kafka clusters have.
_MOST_BYTES = 512 * 2**20


def latencies_to_bytes(latencies: Mapping[str, list[int]]) -> bytes:
    """Packs histograms by topic: those of 1,000 topics take 6 KB instead of 70."""
    counts = np.array(list(latencies.values()), "<i8").reshape(len(latencies), LATENCY_BUCKETS)
    return zlib.compress(json.dumps(list(latencies), separators=(",", ":")).encode() + b"\n" + counts.T.tobytes())


def latencies_from_bytes(data: bytes) -> dict[str, list[int]]:
    """Unpacks them. Raises ValueError or TypeError for what `latencies_to_bytes` does not make."""
    try:
        names, _, counts = zlib.decompressobj().decompress(data, _MOST_BYTES).partition(b"\n")
    except zlib.error as error:
        raise ValueError(f"no packed latencies: {error}") from None
    topics = [str(topic) for topic in json.loads(names)]
    rows = np.frombuffer(counts, "<i8").reshape(LATENCY_BUCKETS, len(topics)).T.tolist()
    return dict(zip(topics, rows, strict=True))


@dataclass(slots=True)
class DeliveryReport:
    """Counts of acked records, and of what it took to deliver them.

    records, bytes: acked; bytes are those of the encoded records before compression. compressed_bytes: of the record batches as
        they went out, their headers included, each batch counted once however often it was sent.
    batches: acked; requests: Produce requests that carried at least one of them; retries: batches sent again.
    errors: batches that a broker or the network refused, by Kafka's error name, passing ones included.
    partitions: (topic, partition) to its report; (topic, -1) to a topic's sum if a task wrote to more than 1,000 of them.
    ack_latency: topic to 24 counts of batches, by the time from first send to ack: count i is of those that took less than
        2 to the power of i ms, and not less than half of that; the last has all that took longer.

    Under exactly-once, once a batch is committed, also: commits: micro-batches or jobs; transactions_committed,
    transactions_aborted: that those ended; prepare_to_visible_ms: from when a commit was made sure to happen until the last of
    its transactions was committed, summed over commits; commit_ms: all that committing took in the driver, summed.
    """

    records: int = 0
    bytes: int = 0
    compressed_bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    partitions: PartitionReports = field(default_factory=PartitionReports)
    ack_latency: dict[str, list[int]] = field(default_factory=dict)
    commits: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    prepare_to_visible_ms: int = 0
    commit_ms: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return _unpacked, (latencies_to_bytes(values.pop("ack_latency")), *values.values())

    def summed(self, maximum: int) -> DeliveryReport:
        """The same with at most `maximum` entries of `partitions`, as far as there are no more topics: those with the most
        partitions become one sum each."""
        return replace(self, partitions=self.partitions.summed(maximum))

    def add(self, other: DeliveryReport) -> None:
        """Merge the report `other` into this one; adding is commutative and associative."""
        self.records += other.records
        self.bytes += other.bytes
        self.compressed_bytes += other.compressed_bytes
        self.batches += other.batches
        self.requests += other.requests
        self.retries += other.retries
        for name in COMMIT_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, count in other.errors.items():
            self.errors[name] = self.errors.get(name, 0) + count
        self.partitions.add(other.partitions)
        for topic, counts in other.ack_latency.items():
            mine = self.ack_latency.setdefault(topic, [0] * LATENCY_BUCKETS)
            self.ack_latency[topic] = [a + b for a, b in zip(mine, counts, strict=True)]


def _unpacked(latencies: bytes, *others: Any) -> DeliveryReport:
    names = (each.name for each in fields(DeliveryReport) if each.name != "ack_latency")
    return DeliveryReport(ack_latency=latencies_from_bytes(latencies), **dict(zip(names, others, strict=True)))
