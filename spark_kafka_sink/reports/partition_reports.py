"""Reports of many partitions: a mapping that merges as numpy columns and packs into a few bytes per partition."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted

NO_OFFSET = -1  # acks=0, or a duplicate that the broker acknowledged without an offset
ALL_PARTITIONS = -1  # in place of a partition: the sum of a topic

Key = tuple[str, int]

# Number of partitions in a repr.
_SHOWN = 8

# Rows of a table's numbers.
_TOPIC, _PARTITION, _RECORDS, _BYTES, _FIRST, _LAST = range(6)

_HEADER = struct.Struct(">I")
_MOST_ENTRIES = 10_000_000
_MOST_BYTES = 49 * _MOST_ENTRIES


@dataclass(slots=True)
class PartitionReport:
    """One partition's share of a report.

    Attributes:
        records: acknowledged records.
        bytes: size of those records, encoded but before compression.
        first_offset: lowest known offset; -1 if none is known.
        last_offset: highest known offset, likewise.
    """

    records: int = 0
    bytes: int = 0
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET


class _Table(NamedTuple):
    """Columns of reports, sorted by topic and partition.

    topics: ascending. numbers: shape (6, entries): index of the topic, partition, and the report's four numbers.
    """

    topics: tuple[str, ...]
    numbers: NDArray[np.int64]

    @property
    def entries(self) -> int:
        return len(self.numbers[0])


_EMPTY = _Table((), np.zeros((6, 0), np.int64))


class PartitionReports(Mapping[Key, PartitionReport]):
    """Mapping from (topic, partition) to PartitionReport. Read it like a dictionary.

    A task that wrote to more than 1,000 partitions reports some topics as one sum under (topic, -1), without offsets. After
    `add`, a topic that either side reports as a sum is a sum.

    Several threads may read at once. `count` and `add` need exclusive access.
    """

    # With 1,000 partitions far apart a dictionary took 52 KB pickled, and adding another task's took 3.4 ms of CPU. This takes
    # 7.3 KB and 0.13 ms, including unpickling; 10.3 KB and 0.25 ms if each partition is of another topic. (Medians of 40 on 2
    # cores; tests/reports/test_partition_reports.py.)

    def __init__(self, reports: Mapping[Key, PartitionReport] | None = None) -> None:
        self._table = _EMPTY
        self._counted: dict[Key, PartitionReport] = {}  # not in the table yet
        self._view: dict[Key, PartitionReport] | None = None
        for (topic, partition), report in (reports or {}).items():
            self.count(topic, partition, report.records, report.bytes, report.first_offset, report.last_offset)

    def count(
        self,
        topic: str,
        partition: int,
        records: int,
        size: int,
        first_offset: int = NO_OFFSET,
        last_offset: int = NO_OFFSET,
    ) -> None:
        """Adds one more batch. Arguments are as in PartitionReport; either both offsets are known or none."""
        self._view = None
        key = topic, partition
        report = self._counted.get(key)
        if report is None:
            self._counted[key] = PartitionReport(records, size, first_offset, last_offset)
            return
        report.records += records
        report.bytes += size
        if first_offset != NO_OFFSET:
            if first_offset < report.first_offset or report.first_offset == NO_OFFSET:
                report.first_offset = first_offset
            report.last_offset = max(report.last_offset, last_offset)

    def add(self, other: PartitionReports) -> None:
        """Merges `other` into this mapping. The operation is commutative and associative."""
        self._table = _added(self._packed(), other._packed())
        self._counted, self._view = {}, None

    def summed(self, maximum: int, always: Set[str] = frozenset()) -> PartitionReports:
        """Returns at most `maximum` entries, or one per topic if there are more topics.

        Topics with the most partitions become one sum each. A topic with a single entry stays as it is.

        Args:
            maximum: The most entries.
            always: Topics that become a sum in any case.
        """
        table = self._packed()
        counts = np.bincount(table.numbers[_TOPIC], minlength=len(table.topics))
        chosen = np.array([topic in always for topic in table.topics], np.bool_)
        entries = table.entries - int((counts[chosen] - 1).sum())
        for topic in np.argsort(-counts, kind="stable").tolist():
            if entries <= maximum or counts[topic] == 1:
                break
            if not chosen[topic]:
                entries -= int(counts[topic]) - 1
                chosen[topic] = True
        return _of(_with_sums(table, chosen) if chosen.any() else table)

    def summed_topics(self) -> list[str]:
        """Returns the topics that are a single sum."""
        table = self._packed()
        return [table.topics[index] for index in np.flatnonzero(_summed_topics(table)).tolist()]

    def largest_topics(self, maximum: int) -> list[str]:
        """Returns at most `maximum` topics: those with the most records, the largest first."""
        topics, numbers = self._packed()
        records = np.bincount(numbers[_TOPIC], numbers[_RECORDS], len(topics))
        return [topics[index] for index in np.argsort(-records, kind="stable")[: max(maximum, 0)].tolist()]

    def with_sum_of_others(self, own: Set[str], name: str) -> PartitionReports:
        """Returns the entries of the topics `own`, and one sum of all others under (name, ALL_PARTITIONS)."""
        topics, numbers = self._packed()
        is_own = np.array([topic in own for topic in topics], np.bool_)[numbers[_TOPIC]]
        found = PartitionReports()
        for topic, *report in numbers[:, is_own].T.tolist():
            found.count(topics[topic], *report)
        others = numbers[:, ~is_own]
        if others.size:
            found.count(name, ALL_PARTITIONS, int(others[_RECORDS].sum()), int(others[_BYTES].sum()))
        return found

    def columns(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Returns the topics and the columns of all reports, without an object for each. Do not change them.

        The array has the shape (6, entries) and is sorted by topic and partition. Its rows are the index of the topic, the
        partition, and the four numbers of PartitionReport.
        """
        return self._packed()

    def _packed(self) -> _Table:
        return _added(self._table, _table_of(self._counted)) if self._counted else self._table

    def _read(self) -> dict[Key, PartitionReport]:
        if self._view is None:
            topics, numbers = self._packed()
            self._view = {(topics[row[_TOPIC]], row[_PARTITION]): PartitionReport(*row[_RECORDS:]) for row in numbers.T.tolist()}
        return self._view

    def __getitem__(self, key: Key) -> PartitionReport:
        return self._read()[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._read())

    def __len__(self) -> int:
        return self._packed().entries

    def __repr__(self) -> str:
        reports = self._read()
        shown = [
            f"{topic}-{number}: {counted(one.records, 'record')}" for (topic, number), one in sorted(reports.items())[:_SHOWN]
        ]
        more = [f"and {len(reports) - _SHOWN:,} more"] if len(reports) > _SHOWN else []
        return f"<PartitionReports {', '.join(shown + more) or 'empty'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionReports.from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Returns the packed form: numbers relative to their minimum, in as few bytes as needed, compressed."""
        topics, numbers = self._packed()
        if not topics:
            return b""
        small, average = _small(numbers)
        least = small.min(axis=1)
        spans = (small - least[:, None]).view(np.uint64)  # may wrap around, and unpacking wraps back
        widths = [(int(largest).bit_length() + 7) // 8 for largest in spans.max(axis=1)]
        planes = [_planes(span, width) for span, width in zip(spans, widths, strict=True)]
        header = json.dumps([topics, numbers.shape[1], average, least.tolist(), widths], separators=(",", ":")).encode()
        return zlib.compress(b"".join([_HEADER.pack(len(header)), header, *planes]))

    @staticmethod
    def from_bytes(data: bytes) -> PartitionReports:
        """Unpacks the mapping. Raises ValueError or TypeError for data that `to_bytes` did not make."""
        if not data:
            return PartitionReports()
        try:
            unpacked = zlib.decompressobj().decompress(data, _MOST_BYTES)
            (size,) = _HEADER.unpack_from(unpacked)
        except (zlib.error, struct.error) as error:
            raise ValueError(f"invalid packed partition reports: {error}") from None
        at = _HEADER.size + size
        topics, count, average, least, widths = json.loads(unpacked[_HEADER.size : at])
        if not 0 < count <= _MOST_ENTRIES:
            raise ValueError(f"packed partition reports have {count} entries")
        small = np.empty((6, count), np.int64)
        for row, lowest, width in zip(small, least, widths, strict=True):
            row[:] = _numbers(unpacked, at, count, width).view(np.int64) + np.int64(lowest)
            at += count * width
        numbers = _large(small, average)
        if not 0 <= numbers[_TOPIC].min() <= numbers[_TOPIC].max() < len(topics):
            raise ValueError("packed partition reports have a topic without a name")
        return _of(_Table(tuple(map(str, topics)), numbers))


def _of(table: _Table) -> PartitionReports:
    reports = PartitionReports()
    reports._table = table
    return reports


def _table_of(reports: Mapping[Key, PartitionReport]) -> _Table:
    topics = tuple(sorted({topic for topic, _ in reports}))
    place = {topic: index for index, topic in enumerate(topics)}
    rows = sorted(
        (place[key[0]], key[1], each.records, each.bytes, each.first_offset, each.last_offset) for key, each in reports.items()
    )
    return _Table(topics, np.ascontiguousarray(np.array(rows, np.int64).T))


def _added(one: _Table, other: _Table) -> _Table:
    if not one.topics or not other.topics:
        return one if one.topics else other
    if one.topics != other.topics:
        topics = tuple(sorted({*one.topics, *other.topics}))
        one, other = _placed(one, topics), _placed(other, topics)
    sums = _summed_topics(one) | _summed_topics(other)
    if sums.any():
        one, other = _with_sums(one, sums), _with_sums(other, sums)
    if not np.array_equal(one.numbers[:2], other.numbers[:2]):
        keys = np.union1d(_keys(one.numbers), _keys(other.numbers))
        one, other = _spread(one, keys), _spread(other, keys)
    total = one.numbers + other.numbers
    total[:_RECORDS] = one.numbers[:_RECORDS]
    # As unsigned, NO_OFFSET exceeds every offset.
    np.minimum(one.numbers[_FIRST].view(np.uint64), other.numbers[_FIRST].view(np.uint64), out=total[_FIRST].view(np.uint64))
    np.maximum(one.numbers[_LAST], other.numbers[_LAST], out=total[_LAST])
    return _Table(one.topics, total)


def _placed(table: _Table, topics: tuple[str, ...]) -> _Table:
    """Returns the table with its topics renumbered among more topics."""
    place = {topic: index for index, topic in enumerate(topics)}
    numbers = table.numbers.copy()
    numbers[_TOPIC] = np.array([place[topic] for topic in table.topics], np.int64)[numbers[_TOPIC]]
    return _Table(topics, numbers)


def _summed_topics(table: _Table) -> NDArray[np.bool_]:
    """Returns which topics are a single sum."""
    found = np.zeros(len(table.topics), np.bool_)
    found[table.numbers[_TOPIC, table.numbers[_PARTITION] == ALL_PARTITIONS]] = True
    return found


def _with_sums(table: _Table, chosen: NDArray[np.bool_]) -> _Table:
    """Returns the table with one sum for each of the `chosen` topics that it has entries of."""
    is_summed = chosen[table.numbers[_TOPIC]]
    kept, summed = table.numbers[:, ~is_summed], table.numbers[:, is_summed]
    topics, starts = np.unique(summed[_TOPIC], return_index=True)
    if not len(topics):
        return table
    sums = np.full((6, len(topics)), NO_OFFSET, np.int64)
    sums[_TOPIC], sums[_PARTITION] = topics, ALL_PARTITIONS
    sums[[_RECORDS, _BYTES]] = np.add.reduceat(summed[[_RECORDS, _BYTES]], starts, axis=1)
    both = np.concatenate([kept, sums], axis=1)
    return _Table(table.topics, np.ascontiguousarray(both[:, np.argsort(_keys(both))]))


def _keys(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns topic and partition as one number that sorts the same."""
    keys: NDArray[np.int64] = (numbers[_TOPIC] << 32) + numbers[_PARTITION] - ALL_PARTITIONS
    return keys


def _spread(table: _Table, keys: NDArray[np.int64]) -> _Table:
    """Returns the table with a column for each key; keys without an entry count zero."""
    spread = np.zeros((6, len(keys)), np.int64)
    spread[_TOPIC], spread[_PARTITION] = keys >> 32, (keys & 0xFFFFFFFF) + ALL_PARTITIONS
    spread[_FIRST:] = NO_OFFSET
    spread[:, np.searchsorted(keys, _keys(table.numbers))] = table.numbers
    return _Table(table.topics, spread)


def _small(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Returns the numbers transformed so that most are small, and the average record size on which the transformation depends.

    They become gaps between topics and partitions, records, bytes beyond the average, first offsets, and the number of offsets of
    other producers.
    """
    topic, partition, records, size, first, last = numbers
    average = int(size.sum()) // max(int(records.sum()), 1)
    gaps = [np.diff(each, prepend=np.int64(0)) for each in (topic, partition)]
    return np.stack([*gaps, records, size - records * average, first, last - first - records]), average


def _large(small: NDArray[np.int64], average: int) -> NDArray[np.int64]:
    topic_gaps, gaps, records, beyond, first, others = small
    return np.stack(
        [np.cumsum(topic_gaps), np.cumsum(gaps), records, beyond + records * average, first, others + first + records]
    )


def _planes(numbers: NDArray[np.uint64], width: int) -> bytes:
    """Returns all lowest bytes, then all second bytes, and so on, because each group compresses better by itself."""
    return numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()


def _numbers(data: bytes, at: int, count: int, width: int) -> NDArray[np.uint64]:
    found = np.zeros((count, 8), np.uint8)
    found[:, :width] = np.frombuffer(data, np.uint8, count * width, at).reshape(width, count).T
    numbers: NDArray[np.uint64] = found.view("<u8").reshape(count)
    return numbers
