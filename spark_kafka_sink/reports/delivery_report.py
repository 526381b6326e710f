"""Report of what a send scope delivered, as plain numbers that can be pickled and merged."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_kafka_sink.counts import counted
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, PartitionReports

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DELETED_SOON = (
    "brokers delete such records soon, however new they are in the topic. Leave the timestamp out to use the time of the write,"
    " or raise the topic's retention.ms"
)


class Tabular(ABC):
    """Has rows as a table of Arrow, which pandas and Spark take."""

    __slots__ = ()

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Returns the rows."""

    def to_pandas(self) -> pd.DataFrame:
        """Returns the rows of `to_arrow`, with integers as `Int32` and `Int64`, which can be null.

        Raises:
            InstallationError: pandas is not installed.
        """
        check_extra("pandas", f"{type(self).__name__}.to_pandas()")
        import pandas as pd
        import pyarrow as pa

        # As floats, offsets above 2**53 would be rounded.
        types = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
        return self.to_arrow().to_pandas(types_mapper=types.get)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Returns the rows of `to_arrow` as a DataFrame of the session `spark`, also of Spark Connect."""
        return spark.createDataFrame(self.to_arrow())


@dataclass(slots=True, repr=False)
class DeliveryReport(Tabular):
    """Counts of acknowledged records, and of requests, retries and errors on the way.

    `print` shows a report as text of several lines, notebooks show it with charts, and its repr is one line.

    Attributes:
        records: acknowledged records, including dead letters.
        bytes: size of those records, encoded but before compression.
        compressed_bytes: size of the record batches as sent, with headers; each batch counts once.
        batches: acknowledged batches.
        requests: Produce requests that carried at least one of them.
        retries: batches that were sent again.
        throttled_ms: pauses in ms that brokers asked for in responses to those requests, because of a quota, summed over
            brokers.
        rate_limited_ms: time in ms that appends waited for max.bytes.per.second and max.records.per.second.
        errors: batches that a broker or the network rejected, by Kafka's error name, including transient errors.
        partitions: PartitionReport by (topic, partition). A task that wrote to more than 1,000 partitions reports one sum,
            under (topic, -1), for some topics.
        ack_latency: 24 counts of batches per topic, by time from first send to acknowledgement. Count i is of latencies from
            2**(i-1) to 2**i ms; the last includes all longer ones.
        commits: committed micro-batches or jobs (exactly-once only, like the fields below).
        transactions_committed: transactions that they committed.
        transactions_aborted: transactions that they aborted.
        prepare_to_visible_ms: time from when a commit was certain until its last transaction was committed, summed over
            commits.
        commit_ms: total commit time in the driver, summed over commits.
        bad_rows: rows that the sink did not deliver to their topics, by reason (option on.error). Rows that a broker rejected
            have Kafka's error name.
        dead_letters: those of them that are in the dead-letter topic. The others were dropped.
        bad_row_example: the error of one of them; empty if there are none.
        older_than_retention: records whose timestamp was older than their topic's retention.ms when they were sent. Brokers
            delete them soon.
        reports_lost: commits whose record could not be written to the topic of the option report.topic.
        clusters: ids of the clusters that records were sent to. A write that finds two fails.
    """

    records: int = 0
    bytes: int = 0
    compressed_bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0
    throttled_ms: int = 0
    rate_limited_ms: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    partitions: PartitionReports = field(default_factory=PartitionReports)
    ack_latency: dict[str, list[int]] = field(default_factory=dict)
    commits: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    prepare_to_visible_ms: int = 0
    commit_ms: int = 0
    bad_rows: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    bad_row_example: str = ""
    older_than_retention: int = 0
    reports_lost: int = 0
    clusters: set[str] = field(default_factory=set, compare=False)

    @property
    def delivered(self) -> int:
        """Rows that are in their own topics: acknowledged records without dead letters."""
        return self.records - self.dead_letters

    @property
    def dropped(self) -> int:
        """Bad rows that are in no topic. `delivered`, `dead_letters` and `dropped` add up to the rows of the DataFrame."""
        return sum(self.bad_rows.values()) - self.dead_letters

    def line(self) -> str:
        """Returns the counts in one line."""
        sums = sum(partition == ALL_PARTITIONS for _, partition in self.partitions)
        parts = [
            counted(self.records, "record"),
            f"{counted(self.bytes, 'byte')} ({self.compressed_bytes:,} sent)",
            f"{counted(self.batches, 'batch', 'batches')} in {counted(self.requests, 'request')}",
            counted(self.retries, "retry", "retries"),
            counted(len(self.partitions) - sums, "topic-partition"),
        ]
        if sums:
            parts.append(counted(sums, "topic as a sum", "topics as sums"))
        parts += self.slowed_down()
        if self.older_than_retention:
            parts.append(f"{self.older_than_retention:,} older than retention.ms")
        if self.reports_lost:
            parts.append(f"{self.reports_lost:,} not in report.topic")
        groups = [", ".join(parts)]
        if self.commits:
            ended = f"{counted(self.transactions_committed, 'transaction')} committed, {self.transactions_aborted:,} aborted"
            groups.append(f"{ended} in {counted(self.commits, 'commit')} of {self.commit_ms / self.commits:,.0f} ms on average")
        if self.bad_rows:
            groups.append(self.bad_rows_text())
        return "; ".join(groups) + self.errors_text("; errors: ")

    def errors_text(self, before: str) -> str:
        """Returns the number of rejected batches for each error, by Kafka's name of it, after `before`; "" if there are none."""
        return before + ", ".join(f"{name} {count:,}" for name, count in sorted(self.errors.items())) if self.errors else ""

    def __repr__(self) -> str:
        return f"<DeliveryReport {self.line()}>"

    def __str__(self) -> str:
        from spark_kafka_sink.reports.report_text import report_text

        return report_text(self)

    def _repr_html_(self) -> str:
        from spark_kafka_sink.reports.report_html import report_html

        return report_html(self)

    def to_arrow(self) -> pa.Table:
        """Returns a row for each topic-partition, sorted by both. The table may have no rows.

        The columns are `topic` (string), `partition` (int32, null for the sum of a topic), `records` and `bytes` (int64), and
        `first_offset` and `last_offset` (int64, null if unknown).
        """
        from spark_kafka_sink.reports.report_tables import partition_table  # pyarrow, which a producer may do without

        return partition_table(self.partitions)

    def bad_rows_text(self) -> str:
        """Returns the bad rows in words: "3 bad rows (serialization 2, too-large 1), 3 dead letters"."""
        reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(self.bad_rows.items()))
        ends = [counted(self.dead_letters, "dead letter")] if self.dead_letters else []
        ends += [f"{self.dropped:,} dropped"] if self.dropped else []
        return f"{counted(sum(self.bad_rows.values()), 'bad row')} ({reasons}), {' and '.join(ends)}"

    def __reduce__(self) -> tuple[Any, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return _unpacked, (latencies_to_bytes(values.pop("ack_latency")), *values.values())

    def slowed_down(self) -> list[str]:
        """Returns what slowed the delivery down on purpose, as texts; empty if nothing did."""
        texts = []
        if self.throttled_ms:
            texts.append(f"throttled by broker quotas for {self.throttled_ms / 1000:,.1f} s")
        if self.rate_limited_ms:
            texts.append(f"held back by the rate limit for {self.rate_limited_ms / 1000:,.1f} s")
        return texts

    def summed(self, maximum: int) -> DeliveryReport:
        """Returns the report with at most `maximum` entries of `partitions`, or one per topic if there are more topics.

        Topics with the most partitions become one sum each.
        """
        return replace(self, partitions=self.partitions.summed(maximum))

    def add(self, other: DeliveryReport) -> None:
        """Merges the report `other` into this one. The operation is commutative and associative."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, count in other.errors.items():
            self.errors[name] = self.errors.get(name, 0) + count
        for name, count in other.bad_rows.items():
            self.bad_rows[name] = self.bad_rows.get(name, 0) + count
        # The same one in whatever order reports are added.
        self.bad_row_example = min(filter(None, (self.bad_row_example, other.bad_row_example)), default="")
        self.clusters |= other.clusters
        self.partitions.add(other.partitions)
        for topic, counts in other.ack_latency.items():
            mine = self.ack_latency.setdefault(topic, [0] * LATENCY_BUCKETS)
            self.ack_latency[topic] = [a + b for a, b in zip(mine, counts, strict=True)]


COUNTS = tuple(each.name for each in fields(DeliveryReport) if each.type == "int")
"""The fields that are sums."""


def _unpacked(latencies: bytes, *others: Any) -> DeliveryReport:
    names = (each.name for each in fields(DeliveryReport) if each.name != "ack_latency")
    return DeliveryReport(ack_latency=latencies_from_bytes(latencies), **dict(zip(names, others, strict=True)))


# Latencies: for each topic, a histogram of the time to acknowledgement

# Bucket i of a latency histogram counts batches acknowledged in [2**(i-1), 2**i) ms; the last bucket is open-ended.
LATENCY_BUCKETS = 24


def latency_bucket(milliseconds: float) -> int:
    """Returns the histogram bucket of an acknowledgement latency."""
    return min(max(int(milliseconds), 0).bit_length(), LATENCY_BUCKETS - 1)


def summed_latencies(histograms: Mapping[str, Sequence[int]]) -> list[int]:
    """Returns the sum of the histograms of all topics; an empty list without topics."""
    return [sum(column) for column in zip(*histograms.values(), strict=True)]


def bucket_of_rank(counts: Sequence[int], rank: float) -> int:
    """Returns the first bucket up to which there are `rank` batches. rank: at most the sum of the counts."""
    return bisect_left(list(accumulate(counts)), rank)


# Limit when unpacking: more topics than Kafka clusters have.
_MOST_BYTES = 512 * 2**20


def latencies_to_bytes(latencies: Mapping[str, list[int]]) -> bytes:
    """Packs histograms by topic: those of 1,000 topics take 6 KB instead of 70."""
    counts = np.array(list(latencies.values()), "<i8").reshape(len(latencies), LATENCY_BUCKETS)
    return zlib.compress(json.dumps(list(latencies), separators=(",", ":")).encode() + b"\n" + counts.T.tobytes())


def latencies_from_bytes(data: bytes) -> dict[str, list[int]]:
    """Unpacks histograms. Raises ValueError or TypeError for data that `latencies_to_bytes` did not make."""
    try:
        names, _, counts = zlib.decompressobj().decompress(data, _MOST_BYTES).partition(b"\n")
    except zlib.error as error:
        raise ValueError(f"invalid packed latencies: {error}") from None
    topics = [str(topic) for topic in json.loads(names)]
    rows = np.frombuffer(counts, "<i8").reshape(LATENCY_BUCKETS, len(topics)).T.tolist()
    return dict(zip(topics, rows, strict=True))
