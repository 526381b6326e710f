"""Runs a task, however Spark calls it: appends all rows, waits until they are acked, and reports.

Under exactly-once the task writes in a transaction, which it leaves open for the commit on the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import DeliveryError, KafkaSinkError, RecordError, SerializationError, UsageError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, TaskRows
from spark_kafka_sink.exactly_once.failpoints import reach
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction, TransactionalIds, first_transactions, slots
from spark_kafka_sink.exactly_once.row_checksum import RowChecksum
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.producer.base.bad_rows import concerns_one_row
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.feed import Counts, Feed
from spark_kafka_sink.spark.local_variables import without_local_variables
from spark_kafka_sink.spark.open_transactions import OpenTransaction, owner
from spark_kafka_sink.spark.python_workers import ending_at_hangup, keep_modules_uncollected, log_in_sparks_process
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.coalescer import ArrowBatchCoalescer
from spark_kafka_sink.spark.task.columns import TopicRecords, records_by_topic
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.progress_sender import reporter

if TYPE_CHECKING:
    from spark_kafka_sink.producer.base.bad_rows import BadRows
    from spark_kafka_sink.producer.scopes.send_scope import SendScope, TransactionScope
    from spark_kafka_sink.records.columns import RecordColumns
    from spark_kafka_sink.spark.task.bad_rows import BadRowHandler
    from spark_kafka_sink.spark.task.coalescer import CoalescedRecords
    from spark_kafka_sink.spark.task.refused_rows import RefusedRows

    Refuse = Callable[[RefusedRows], None]

SchemaAndBatch = tuple[SinkSchema, Any]
"""Columns, and a RecordBatch or, if a caller has split bad rows off it, a `SplitBatch`."""

# Entries of a task's report. Those of 1,000 take 5 to 7 KB in the task's result, and as much in its accumulator: with 10,000
# entries, tasks of a large job would exceed spark.driver.maxResultSize (1 GiB) after all their rows are written.
MOST_PARTITIONS = 1000

# StreamExecution.QUERY_ID_KEY and MicroBatchExecution.BATCH_ID_KEY
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def spark_partition() -> int:
    """Returns the partition of the current Spark task, or -1 outside of a task."""
    context = TaskContext.get()
    return -1 if context is None else context.partitionId()


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(name) if context else None


def task_query_id() -> str:
    """Returns the id of the streaming query that the current task belongs to; empty if there is none."""
    return _local_property(QUERY_ID) or ""


def task_batch() -> MicroBatch:
    """Returns the micro-batch of this task, from its local properties. Raises UsageError outside of a micro-batch."""
    query_id, batch = _local_property(QUERY_ID), _local_property(BATCH_ID)
    if query_id is None or batch is None:
        raise UsageError("delivery.guarantee=exactly-once: this Spark task has no query id and batch id in its local properties")
    return MicroBatch(query_id, int(batch))


@without_local_variables
def run_task(
    batches: Iterable[SchemaAndBatch],
    options: SinkOptions,
    feed: Feed,
    batch: MicroBatch | None = None,
    *,
    serialized_before: frozenset[str] = frozenset(),
) -> tuple[DeliveryReport, TaskTransaction | None]:
    """Delivers every row and returns the report.

    All rows are acked when this returns, because Spark kills workers without running `finally` and `atexit`. Notes on an
    exception say how many rows were acknowledged, because nothing else of a failed attempt reaches the driver.

    Args:
        batch: the batch that the rows belong to, under exactly-once; None under another guarantee. With a batch the rows are
            written in a transaction. The committer owns the transaction when this returns. The task never asks for the outcome
            of an earlier attempt, because only a commit decides. A task that fails has aborted its transaction.
        serialized_before: the parts, key and value, that a serializer has made already. Dead letters say so.

    Raises:
        BatchAbortedError: `batch` is a job that took too long to be committed.
    """
    log_in_sparks_process()
    keep_modules_uncollected()
    if batch is not None:
        reach("task.start", batch.number)
        batches = _in_time(batches, options, batch)
    iterator = iter(batches)
    try:
        first = next(iterator, None)
    except KafkaSinkError as error:
        _add_way_out(error, options)
        raise
    report, transaction, passed = DeliveryReport(), None, None
    if first is not None:  # Many tasks of a small DataFrame have no rows, and need no connection or transaction.
        rows = chain([first], iterator)
        if batch is None:
            report = _deliver(rows, options, feed, serialized_before)
        else:
            report, transaction, passed = _deliver_in_transaction(rows, options, feed, batch)
    feed.task_done(report)
    if batch is None:
        return report, None
    reach("message.before", batch.number)
    return report, TaskTransaction(batch, transaction, passed)


def _watched(
    scope: SendScope, feed: Feed, transaction: Callable[[], OpenTransaction | None] = lambda: None
) -> AbstractContextManager[None]:
    """Returns a block in which the task's progress goes to the driver program, with the transaction that it has open."""
    context = TaskContext.get()
    if context is None or feed.listener is None:
        return nullcontext()
    call = feed.call or task_query_id()
    return reporter.watching(feed.listener, str(context.taskAttemptId()), call, lambda: Counts(*scope.progress()), transaction)


def _opened(scope: TransactionScope, batch: MicroBatch, options: SinkOptions) -> OpenTransaction | None:
    """Returns the task's transaction; None before its first rows are sent."""
    sent = scope.first_sent
    if sent is None:
        return None
    sink = "" if options.exactly_once is None else options.exactly_once.sink
    began = time.time() - (time.monotonic() - sent)
    return OpenTransaction(owner(batch.query_id, sink), batch.number, began, options.producer.transaction_timeout_ms / 1000)


def _deliver(
    batches: Iterable[SchemaAndBatch], options: SinkOptions, feed: Feed, serialized_before: frozenset[str]
) -> DeliveryReport:
    with cache.scope(options.producer, keeps_rejected=options.errors.tolerates) as scope, _watched(scope, feed):
        bad_rows = _bad_rows(scope, options, serialized_before)
        try:
            records = _records(scope, batches, options, None if bad_rows is None else bad_rows.refuse)
            _append_all(scope, records, options, bad_rows)
            if bad_rows is None:
                scope.flush()
            else:
                bad_rows.settle()
        except BaseException as error:
            report, context = scope.report(), TaskContext.get()
            feed.delivered(report)
            if not isinstance(error, Exception):  # an interrupt, whose note the call writes
                raise
            task = "" if context is None else f" of Spark partition {context.partitionId()}, attempt {context.attemptNumber()}"
            stays = (
                f"Kafka has acknowledged {counted(report.records, 'row')}{task}; they stay in their topics, and another attempt"
                " writes them again."
            )
            none = f"Kafka has acknowledged no rows{task}."
            error.add_note(f"{stays if report.records else none}{report.errors_text(' Rejected batches by error: ')}")
            _add_way_out(error, options)
            raise
        return _report(scope, bad_rows)


def _deliver_in_transaction(
    batches: Iterable[SchemaAndBatch], options: SinkOptions, feed: Feed, batch: MicroBatch
) -> tuple[DeliveryReport, PreparedTransaction | None, TaskRows | None]:
    assert options.exactly_once is not None
    ids = TransactionalIds(options.exactly_once.transactional_id_prefix, batch.query_id, feed.driver)
    checksum = RowChecksum()
    transactional_id = slots.take(ids, batch.number)
    opened = cache.transaction(options.producer, transactional_id, keeps_rejected=options.errors.tolerates)
    with ending_at_hangup(), opened as scope, _watched(scope, feed, lambda: _opened(scope, batch, options)):
        # An earlier attempt may have committed a part of a micro-batch, which the commit must complete whatever this one finds.
        bad_rows = _bad_rows(scope, options, fails_at_limit=batch.is_job)

        def refuse(refused: RefusedRows) -> None:
            assert bad_rows is not None
            checksum.add_refused(refused.topics, refused.columns)
            bad_rows.refuse(refused)

        def checksummed() -> Iterator[TopicRecords]:
            for records in _records(scope, _stepping(batches, batch), options, None if bad_rows is None else refuse):
                checksum.add(records.topic, records.columns)
                yield records

        try:
            reach("produce.before", batch.number)
            _append_all(scope, checksummed(), options, bad_rows)
            reach("flush.before", batch.number)
            if bad_rows is not None:
                bad_rows.settle()
            handle = scope.prepare()
            reach("flush.after", batch.number)
        except Exception as error:
            rejected = scope.report().errors_text(" Rejected batches by error: ")
            error.add_note(f"The task's transaction is aborted: consumers that read committed see none of its rows.{rejected}")
            _add_way_out(error, options)
            raise
        report = _report(scope, bad_rows)
        passed = TaskRows(spark_partition(), checksum.rows, checksum.value) if checksum.rows else None
        if handle is None:
            return report, None, passed
        if scope.first_sent is not None:
            first_transactions.prepared(batch, scope.first_sent)
        if (left := _opened(scope, batch, options)) is not None:
            feed.left_open(left)
        return report, PreparedTransaction(handle, spark_partition(), checksum.value), passed


# Names of the errors with which brokers reject single records.
_OF_ROWS = {code.name for code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE)}


def _add_way_out(error: Exception, options: SinkOptions) -> None:
    """Adds to the error of a bad row how to go on without it."""
    cause = error.__cause__ if isinstance(error, DeliveryError) else error
    is_rejected = isinstance(cause, KafkaSinkError) and cause.facts.get("error") in _OF_ROWS
    if (is_rejected or concerns_one_row(error)) and not options.errors.tolerates:
        error.add_note("To go on without such rows, set on.error=dead-letter and dead.letter.topic.")


def _bad_rows(
    scope: SendScope, options: SinkOptions, serialized_before: frozenset[str] = frozenset(), *, fails_at_limit: bool = True
) -> BadRowHandler | None:
    """Returns what handles bad rows; None if they fail the task."""
    if not options.errors.tolerates:
        return None
    from spark_kafka_sink.spark.task.bad_rows import BadRowHandler
    from spark_kafka_sink.spark.task.dead_letters import Place

    place = Place(spark_partition(), _local_property(QUERY_ID), _local_property(BATCH_ID))
    return BadRowHandler(scope, options, place, serialized_before, fails_at_limit=fails_at_limit)


def _append_all(scope: SendScope, records: Iterable[TopicRecords], options: SinkOptions, bad_rows: BadRowHandler | None) -> None:
    for rows in ArrowBatchCoalescer(scope.rows_per_append, options.producer.linger_ms).coalesced(records):
        if bad_rows is None:
            try:
                scope.append(rows.topic, rows.columns())
            except (RecordError, SerializationError) as error:
                rows.add_row_of_task(error)
                raise
        else:
            _append_good(scope, rows, bad_rows, options.producer.buffer_memory)
        del rows  # frees the memory before the next rows come


# Rejected rows are kept in as much memory as buffer.memory, until they are taken. So at most this part of it is appended at once.
_PART_APPENDED = 4


def _append_good(scope: SendScope, rows: CoalescedRecords, bad_rows: BadRowHandler, buffer_memory: int) -> None:
    """Appends the rows that the producer takes. The others are handled after the append, because their letters are appended."""
    columns = rows.columns()
    if bad_rows.refuse_topic(rows.topic, columns, rows.rows_in_task()):
        return
    for first, part in _parts(columns, rows.nbytes, buffer_memory // _PART_APPENDED):
        found: list[BadRows] = []
        numbers = rows.rows_in_task(first)
        try:
            scope.append(rows.topic, part, on_bad_rows=found.append, row_numbers=numbers)
        except KafkaSinkError as error:
            bad_rows.raise_named(error)
        for bad in found:
            bad_rows.refuse_of_append(bad, numbers)
        bad_rows.take_after_append(part.num_records, is_part=part is not columns)


def _parts(columns: RecordColumns, nbytes: int, most_bytes: int) -> Iterator[tuple[int, RecordColumns]]:
    """Yields the rows in parts of up to `most_bytes` on average, with the number of the first row of each."""
    size = max(1, columns.num_records // (nbytes // max(most_bytes, 1) + 1))
    for first in range(0, max(columns.num_records, 1), size):
        yield first, columns.slice(first, size)


def _report(scope: SendScope, bad_rows: BadRowHandler | None) -> DeliveryReport:
    report = scope.report().summed(MOST_PARTITIONS)
    if bad_rows is None:
        return report
    bad_rows.log()
    return bad_rows.report(report)


def _records(
    scope: SendScope, batches: Iterable[SchemaAndBatch], options: SinkOptions, refuse: Refuse | None = None
) -> Iterator[TopicRecords]:
    """Yields the rows of all batches, topic by topic within each batch, whose topics are asked for together.

    refuse: is called with bad rows, which are then left out; None: they raise.
    """
    first_row = 0
    for schema, batch in batches:
        if isinstance(batch, pa.RecordBatch):
            yield from _records_of(scope, schema, batch, options, first_row, refuse)
            first_row += batch.num_rows
            continue
        assert refuse is not None
        refuse(batch.refused.in_task(first_row))
        yield from _records_of(scope, schema, batch.batch, options, first_row, refuse, batch.rows)
        first_row += batch.batch.num_rows + batch.refused.columns.num_records


def _records_of(
    scope: SendScope,
    schema: SinkSchema,
    batch: pa.RecordBatch,
    options: SinkOptions,
    first_row: int,
    refuse: Refuse | None,
    rows: NDArray[np.intp] | None = None,
) -> Iterator[TopicRecords]:
    fixed, unit = options.record.headers, options.record.timestamp_unit
    by_topic = partial(
        records_by_topic, schema=schema, topic=options.topic, first_row=first_row, fixed_headers=fixed, timestamp_unit=unit
    )
    try:
        found = list(by_topic(batch, rows=rows))  # several topics are slices of one copy, so that a list takes no memory
    except (RecordError, SerializationError):
        if refuse is None:
            raise
        from spark_kafka_sink.spark.task.refused_rows import split_batch

        split = split_batch(
            batch, schema, options.topic, first_row=first_row, fixed_headers=fixed, rows=rows, timestamp_unit=unit
        )
        refuse(split.refused)
        found = list(by_topic(split.batch, rows=split.rows))
    scope.request_topics(each.topic for each in found)
    yield from found


def _in_time(batches: Iterable[SchemaAndBatch], options: SinkOptions, batch: MicroBatch) -> Iterator[SchemaAndBatch]:
    """Yields the batches. Raises BatchAbortedError once the job has taken too long."""
    first_transactions.check(batch, options.producer.transaction_timeout_ms)
    for each in batches:
        first_transactions.check(batch, options.producer.transaction_timeout_ms)
        yield each


def _stepping(batches: Iterable[SchemaAndBatch], batch: MicroBatch) -> Iterator[SchemaAndBatch]:
    """Yields the batches. The producer has taken the first one when the second is requested."""
    for index, each in enumerate(batches):
        yield each
        if index == 0:
            reach("produce.after", batch.number)
