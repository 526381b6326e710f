"""What a task does under exactly-once: write all rows in a transaction, leave it open when all is acked, and tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.failpoints import reach
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction, first_transactions
from spark_kafka_sink.exactly_once.row_checksum import RowChecksum
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds, slots
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.metrics import Feed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.process_log import log_in_sparks_process
from spark_kafka_sink.spark.producer_cache import cache
from spark_kafka_sink.spark.report_text import errors_text
from spark_kafka_sink.spark.task_writer import SchemaAndBatch, append_all, report_of_task, spark_partition


def write_in_transaction(
    batches: Iterable[SchemaAndBatch], options: SinkOptions, feed: Feed, batch: MicroBatch
) -> tuple[DeliveryReport, TaskTransaction]:
    """Write every row and report it, with the open transaction, which is the committer's from here on.

    It never asks what became of the batch before: only a commit decides. A task that fails has aborted its transaction.
    BatchAbortedError: it is a job's that has taken too long to be committed.
    """
    log_in_sparks_process()
    reach("task.start", batch.number)
    iterator = iter(_in_time(batches, options, batch))
    first = next(iterator, None)
    # Many tasks of a small DataFrame have no rows: they need no transaction.
    report, transaction = (DeliveryReport(), None) if first is None else _write(chain([first], iterator), options, batch)
    feed.task_done(report)
    reach("message.before", batch.number)
    return report, TaskTransaction(batch, transaction)


def _write(
    batches: Iterable[SchemaAndBatch], options: SinkOptions, batch: MicroBatch
) -> tuple[DeliveryReport, PreparedTransaction | None]:
    assert options.exactly_once is not None
    ids = TransactionalIds(options.exactly_once.transactional_id_prefix, batch.query_id)
    checksum = RowChecksum()
    with cache.transaction(options.producer, slots.take(ids, batch.number)) as scope:
        try:
            reach("produce.before", batch.number)
            append_all(_with_failpoint(batches, batch), options, scope, lambda each: checksum.add(each.topic, each.columns))
            reach("flush.before", batch.number)
            handle = scope.prepare()
            reach("flush.after", batch.number)
        except Exception as error:
            error.add_note(_what_is_known(scope.report()))
            raise
        if handle is None:
            return report_of_task(scope), None
        if scope.first_sent is not None:
            first_transactions.prepared(batch, scope.first_sent)
        return report_of_task(scope), PreparedTransaction(handle, spark_partition(), checksum.value)


def _in_time(batches: Iterable[SchemaAndBatch], options: SinkOptions, batch: MicroBatch) -> Iterator[SchemaAndBatch]:
    """Yields the batches; raises BatchAbortedError once the job has taken too long."""
    first_transactions.check(batch, options.producer.transaction_timeout_ms)
    for each in batches:
        first_transactions.check(batch, options.producer.transaction_timeout_ms)
        yield each


def _with_failpoint(batches: Iterable[SchemaAndBatch], batch: MicroBatch) -> Iterator[SchemaAndBatch]:
    """The same; who asks for the second has given the first to the producer."""
    for index, each in enumerate(batches):
        yield each
        if index == 0:
            reach("produce.after", batch.number)


def _what_is_known(report: DeliveryReport) -> str:
    refused = errors_text(report, " Refused batches by error: ")
    return f"The task's transaction is aborted: consumers that read committed see none of its rows.{refused}"
