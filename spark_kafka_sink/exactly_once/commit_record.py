"""The record of a batch in the commit log and its encoding: human-readable JSON in chunks that brokers accept.

Key: `["<query id>",<chunk>]`, because with the query id alone compaction would keep only the last chunk. Value: an object with
the fields of the record and the chunk's part of its lists.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

NO_ID: Final = str(uuid.UUID(int=0))  # Kafka's Uuid.ZERO_UUID


class State(StrEnum):
    """The state of a batch.

    PREPARED: any driver or command that reads this commits its transactions.
    COMPLETE: all transactions are committed.
    ABORTED: all transactions are proved to be aborted, and the batch must be written again.
    CLOSED: there was no batch yet, and the transactions written for the first one are aborted on request.
    REPLAY: some transactions are aborted; tasks whose rows are proved to be the same may write them again.
    """

    PREPARED = "prepared"
    COMPLETE = "complete"
    ABORTED = "aborted"
    CLOSED = "closed"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True, order=True)
class TaskRows:
    """The rows that Spark passed to a task of a batch, whether its transaction has all of them or not. It can be pickled.

    Attributes:
        spark_partition: Spark partition of the task; -1 if unknown.
        rows: Number of rows.
        checksum: Checksum of the rows, independent of how they were split into Arrow batches.
    """

    spark_partition: int
    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The open transaction of one task of a batch. It can be pickled.

    That of the batch's report (option report.topic) is one, too. It has no rows: see `with_rows`.

    Attributes:
        handle: Identifies the transaction and ends it.
        spark_partition: Spark partition of the task; -1 if unknown.
        checksum: Checksum of the rows that Spark passed to the task, as in TaskRows.
    """

    handle: TransactionHandle
    spark_partition: int
    checksum: int


def with_rows(handles: Iterable[TransactionHandle]) -> tuple[TransactionHandle, ...]:
    """Returns the transactions that have rows. They decide about a batch, and its report follows.

    A batch without rows has only its report, which is returned then.
    """
    found = tuple(handles)
    return tuple(each for each in found if each.records) or found


def stored_rows(transactions: Iterable[PreparedTransaction]) -> tuple[TaskRows, ...]:
    """Returns the rows of tasks whose transactions have all of their rows. A transaction without rows is of no task."""
    return tuple(
        TaskRows(each.spark_partition, each.handle.records, each.checksum) for each in transactions if each.handle.records
    )


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The decision about the last batch of a query or batch job.

    Attributes:
        query_id: Spark's id of the query, or the id of the job.
        record_id: Random id, different for each record.
        rows: Number of rows in all transactions.
        committed: Transactional ids that were committed before this record, because a replay left them in place.
        aborted: Transactional ids that are proved to be aborted, if the state is REPLAY, or COMPLETE with an accepted loss.
            Also ids that an operator asked to abort before they were prepared: a commit() of one of them must stop.
        checkpoint: Checkpoint location of the query as it was given; "" if unknown.
        tasks: The rows that Spark passed to each task with rows, if the transactions have another number of rows, because some
            were dropped (on.error=drop) or an interceptor changed it. Empty otherwise, and if an older version wrote the record.
        topic_ids: While the state is PREPARED, the id of each topic under which rows of `to_commit` were written. Also NO_ID for
            each topic in `gone`.
        name: Name of the query, which only people read; "" without one.
    """

    query_id: str
    batch: int
    state: State
    record_id: str
    rows: int
    transactions: tuple[PreparedTransaction, ...] = ()
    committed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    checkpoint: str = ""
    tasks: tuple[TaskRows, ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()
    name: str = ""

    @property
    def gone(self) -> frozenset[str]:
        """Returns the topics that were replaced when the batch was committed in part. Empty once the query has stopped for it."""
        return frozenset(topic for topic, topic_id in self.topic_ids if topic_id == NO_ID)

    @property
    def passed(self) -> tuple[TaskRows, ...]:
        """Returns the rows that Spark passed to the tasks, as far as the record tells."""
        return self.tasks or stored_rows(self.transactions)

    @property
    def handles(self) -> tuple[TransactionHandle, ...]:
        return tuple(each.handle for each in self.transactions)

    @property
    def aborted_handles(self) -> tuple[TransactionHandle, ...]:
        aborted = set(self.aborted)
        return tuple(each for each in self.handles if each.transactional_id in aborted)

    @property
    def to_commit(self) -> tuple[TransactionHandle, ...]:
        """Returns the transactions that are still to be committed while the record is prepared."""
        committed = set(self.committed)
        return tuple(each for each in self.handles if each.transactional_id not in committed)


FORMAT: Final = 4
"""Format number, raised with every change: a driver that does not understand a record must not act on it.

In format 1 a transaction has `end_txn`, the version of EndTxn that ends it; format 2 has `version`, the transaction version.
Format 3 adds `tasks`, and format 4 `topic_ids`. The older formats are still read, because an upgraded query may find its last
record in them. A record is written in the oldest format that has what it needs, so a query whose last batch is complete and was
stored as a whole can go back to an older version. Every released version reads `name`, which is in records of named queries.
"""
CHUNK_BYTES: Final = 500_000
"""Half of Kafka's default max.message.bytes."""

# By format.
_LISTS: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("transactions", "committed", "aborted"),
    2: ("transactions", "committed", "aborted"),
    3: ("transactions", "committed", "aborted", "tasks"),
    4: ("transactions", "committed", "aborted", "tasks", "topic_ids"),
}
_FIELDS: Final = frozenset({"format", "query_id", "batch", "state", "record_id", "rows", "checkpoint", "name", "chunks", "chunk"})
# Short names, because a record may have thousands of them. to: (topic, partitions); task: Spark's partition.
_TRANSACTION_FIELDS: Final = frozenset({"id", "pid", "epoch", "version", "rows", "to", "task", "sum"})
# By format: the field of the transaction version, and the version that each of its values means.
_VERSIONS: Final[Mapping[int, tuple[str, Mapping[int, int]]]] = {
    1: ("end_txn", {4: 1, 5: 2}),
    2: ("version", {1: 1, 2: 2}),
    3: ("version", {1: 1, 2: 2}),
    4: ("version", {1: 1, 2: 2}),
}

# The errors of json.loads for bytes that are not JSON, or not UTF-8, or nested too deeply.
_NOT_JSON: Final = (ValueError, RecursionError)

T = TypeVar("T")


class CommitRecordError(ProtocolError):
    """A record in the commit log that this version cannot read: newer, damaged, or written by another application."""

    code = "COMMIT_RECORD"


# Encoded


def encode_key(query_id: str, chunk: int) -> bytes:
    return _json([query_id, chunk])


def encode(record: CommitRecord, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Returns the values of the chunks in order. The lists in a chunk have at most `chunk_bytes`, or a single longer item."""
    items: list[tuple[str, object]] = [("transactions", _encoded(each)) for each in record.transactions]
    items += [("committed", each) for each in record.committed]
    items += [("aborted", each) for each in record.aborted]
    items += [("tasks", [each.spark_partition, each.rows, each.checksum]) for each in record.tasks]
    items += [("topic_ids", each) for each in record.topic_ids]
    version = FORMAT if record.topic_ids else 3 if record.tasks else 2
    parts = _parts([len(_json(item)) for _, item in items], chunk_bytes)
    head = {
        "format": version,
        "query_id": record.query_id,
        "batch": record.batch,
        "state": record.state.value,
        "record_id": record.record_id,
        "rows": record.rows,
        "checkpoint": record.checkpoint,
        **({"name": record.name} if record.name else {}),
        "chunks": len(parts),
    }
    chunks = []
    for number, (start, end) in enumerate(parts):
        lists = {name: [item for kind, item in items[start:end] if kind == name] for name in _LISTS[version]}
        chunks.append(_json({**head, "chunk": number, **lists}))
    return chunks


def _encoded(each: PreparedTransaction) -> dict[str, object]:
    handle = each.handle
    return {
        "id": handle.transactional_id,
        "pid": handle.producer_id,
        "epoch": handle.epoch,
        "version": handle.transaction_version,
        "rows": handle.records,
        "to": handle.partitions,
        "task": each.spark_partition,
        "sum": each.checksum,
    }


def _parts(sizes: Sequence[int], maximum: int) -> list[tuple[int, int]]:
    """Returns the item range (start, end) of each chunk; at least one chunk."""
    parts = []
    start = used = 0
    for number, size in enumerate(sizes):
        if used + size > maximum and number > start:
            parts.append((start, number))
            start, used = number, 0
        used += size
    return [*parts, (start, len(sizes))]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# Decoded


def decode_key(key: bytes | None, topic: str) -> tuple[str, int]:
    """Returns the query id and the chunk number. Raises CommitRecordError. topic: the record's topic, for the error."""
    try:
        found: object = json.loads(key or b"")
    except _NOT_JSON:
        found = None
    match found:
        case [str(query_id), int(chunk)]:
            return query_id, chunk
    raise CommitRecordError(
        f"topic {topic} has a record with the key {(key or b'')[:100]!r}, which this sink did not write:"
        " the topic is not a commit log, or not exclusively; set commit.log.topic to a topic that nothing else uses",
        topic=topic,
    )


def decode(chunks: Mapping[int, bytes]) -> CommitRecord:
    """Returns a query's last record, decoded from the last values by chunk number. Raises CommitRecordError."""
    first = _chunk(chunks, 0, None)
    objects = [first, *(_chunk(chunks, number, first) for number in range(1, _get(first, "chunks", int)))]
    version = _get(first, "format", int)
    lists = {name: [item for each in objects for item in _get(each, name, list)] for name in _LISTS[version]}
    if (state := _get(first, "state", str)) not in set(State):
        raise CommitRecordError(f"a record of the commit log has the unknown state {state!r}: a newer version wrote it")
    return CommitRecord(
        query_id=_get(first, "query_id", str),
        batch=_get(first, "batch", int),
        state=State(state),
        record_id=_get(first, "record_id", str),
        rows=_get(first, "rows", int),
        transactions=tuple(_decoded(each, version) for each in lists["transactions"]),
        committed=tuple(map(_name, lists["committed"])),
        aborted=tuple(map(_name, lists["aborted"])),
        checkpoint=_get(first, "checkpoint", str),
        tasks=tuple(map(_task_rows, lists.get("tasks", ()))),
        topic_ids=tuple(map(_topic_id, lists.get("topic_ids", ()))),
        name=_get(first, "name", str) if "name" in first else "",
    )


def _chunk(chunks: Mapping[int, bytes], number: int, first: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if number not in chunks:
        raise CommitRecordError(
            f"chunk {number} of a record in the commit log is missing: was the topic's cleanup.policy always compact?"
        )
    try:
        found: object = json.loads(chunks[number])
    except _NOT_JSON:
        raise CommitRecordError(f"the commit log has {chunks[number][:100]!r}, which is not this sink's") from None
    if not isinstance(found, dict):
        raise CommitRecordError(f"the commit log has the value {chunks[number][:100]!r}, which is not this sink's")
    if (version := _get(found, "format", int)) not in _VERSIONS:
        raise CommitRecordError(
            f"query {found.get('query_id')} has a record of format {version} in the commit log, this version reads formats up to"
            f" {FORMAT}: run the version that wrote it, or a newer one",
            format=version,
        )
    _check_fields(found, {*_FIELDS, *_LISTS[version]})
    if first is not None and _get(found, "record_id", str) != _get(first, "record_id", str):
        raise CommitRecordError(f"chunk {number} of query {first.get('query_id')} in the commit log is another record's")
    return found


def _name(item: object) -> str:
    if not isinstance(item, str):
        raise CommitRecordError(f"a record of the commit log has the transactional id {item!r}: it is damaged")
    return item


def _decoded(item: object, record_format: int) -> PreparedTransaction:
    if not isinstance(item, dict):
        raise CommitRecordError(f"a record of the commit log has the transaction {item!r}")
    field, versions = _VERSIONS[record_format]
    _check_fields(item, _TRANSACTION_FIELDS - {"version"} | {field})
    handle = TransactionHandle(
        transactional_id=_get(item, "id", str),
        producer_id=_get(item, "pid", int),
        epoch=_get(item, "epoch", int),
        transaction_version=_version(item, field, versions),
        records=_get(item, "rows", int),
        partitions=tuple(map(_partitions, _get(item, "to", list))),
    )
    return PreparedTransaction(handle, _get(item, "task", int), _get(item, "sum", int))


def _task_rows(item: object) -> TaskRows:
    match item:
        case [int(partition), int(rows), int(checksum)] if not any(isinstance(each, bool) for each in item):
            return TaskRows(partition, rows, checksum)
    raise CommitRecordError(f"a record of the commit log has the task {item!r}: another version wrote it, or it is damaged")


def _version(item: Mapping[str, Any], field: str, versions: Mapping[int, int]) -> int:
    if (said := _get(item, field, int)) not in versions:
        raise CommitRecordError(f"a record of the commit log has {field} = {said}: a newer version wrote it, or it is damaged")
    return versions[said]


def _partitions(item: object) -> tuple[str, str]:
    match item:
        case [str(topic), str(numbers)]:
            return topic, numbers
    raise CommitRecordError(f"a record of the commit log has the partitions {item!r}: another version wrote it, or it is damaged")


def _topic_id(item: object) -> tuple[str, str]:
    match item:
        case [str(topic), str(topic_id)] if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", topic_id):
            return topic, topic_id
    raise CommitRecordError(f"a record of the commit log has the topic id {item!r}: another version wrote it, or it is damaged")


def _check_fields(found: Mapping[str, Any], known: Collection[str]) -> None:
    if unknown := sorted(set(found) - set(known)):
        raise CommitRecordError(f"a record of the commit log has unknown fields: {', '.join(unknown)}; a newer version wrote it")


def _get(found: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = found.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CommitRecordError(f"a record of the commit log has {name} = {value!r}: another version wrote it, or it is damaged")
    return value
