"""Writes a record about each committed micro-batch or batch job to the topic of the option `report.topic`.

Under exactly-once the record is in another transaction than the rows. It is prepared with theirs and committed after them, so
that the record is there once, and only if the rows are committed. A record that cannot be written never stops rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from spark_kafka_sink.errors import KafkaSinkError, LocalError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds, slots
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.report_options import REPORT_TOPIC
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.records.arrow_arrays import array_of_bytes
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.report_record import ReportRecord
from spark_kafka_sink.spark.task.producer_cache import cache

if TYPE_CHECKING:
    from spark_kafka_sink.producer.scopes.send_scope import SendScope

logger = logging.getLogger(__name__)

_WAIT_MS: Final = 2_000
"""For each of five: a producer id, the topic's metadata, the write and its repetition, and the abort of a transaction."""
_SHARE: Final = 80
"""The part of transaction.timeout.ms that each may take, so that waiting for a report costs no batch its transactions."""
_PAUSE_S: Final = 60.0
"""After brokers refused a report, or did not answer: a missing topic holds up one commit a minute, and not all."""
_MOST_BYTES: Final = 1024 * 1024
"""Of a record, whatever kafka.max.request.size allows rows."""

_failed: Final[dict[tuple[tuple[str, ...], str], float]] = {}
"""By cluster and topic: when a report could not be written last, on time.monotonic's clock."""

R = TypeVar("R")


def write_report(options: SinkOptions, batch: BatchReport, name: str = "") -> bool:
    """Writes the report of a batch whose rows are delivered. It never raises. Returns whether it was written.

    name: of the query, if it is not in the options.
    """

    def write(config: ProducerConfig, append: Callable[[SendScope], None]) -> bool:
        with cache.scope(config) as scope:
            append(scope)
            scope.flush()
        return True

    return bool(_tried(options, batch, name or options.query_name, write))


def prepare_report(options: SinkOptions, batch: BatchReport, driver: str, name: str = "") -> PreparedTransaction | None:
    """Writes the report of a batch in a transaction that is left open for the batch's commit. It never raises.

    driver: as in TransactionalIds. name: as in `write_report`. Returns None if the report could not be written.
    """
    assert options.exactly_once is not None
    ids = TransactionalIds(options.exactly_once.transactional_id_prefix, batch.query_id, driver)

    def prepare(config: ProducerConfig, append: Callable[[SendScope], None]) -> PreparedTransaction | None:
        with cache.transaction(config, slots.take(ids, batch.batch)) as scope:
            append(scope)
            handle = scope.prepare()
        # It has no rows, so that it has no part in what tells whether rows are the same. A topic of reports that is deleted and
        # created again is no reason to write the rows again, so its id is not watched.
        return None if handle is None else PreparedTransaction(replace(handle, records=0, topic_ids=()), -1, 0)

    return _tried(options, batch, name or options.query_name, prepare)


def _tried(
    options: SinkOptions, batch: BatchReport, name: str, write: Callable[[ProducerConfig, Callable[[SendScope], None]], R]
) -> R | None:
    assert options.report_topic is not None
    topic = options.report_topic
    place = options.producer.bootstrap_servers, topic
    failed = _failed.get(place)
    if failed is not None and time.monotonic() < failed + _PAUSE_S:
        return None
    try:
        value = ReportRecord(batch, name, str(options.guarantee)).value()
        columns = RecordColumns(1, array_of_bytes([value]), array_of_bytes([batch.query_id.encode()]))
        wait_ms = _WAIT_MS
        if options.exactly_once is not None:
            wait_ms = min(wait_ms, options.producer.transaction_timeout_ms // _SHARE)
        written = write(_config(options.producer, wait_ms), lambda scope: scope.append(topic, columns))
        _failed.pop(place, None)
        return written
    except Exception as error:  # whatever it is, the rows are delivered
        if isinstance(error, KafkaSinkError) and not isinstance(error, LocalError):
            _failed[place] = time.monotonic()
        logger.log(
            logging.WARNING if failed is None else logging.INFO,
            "option %s: topic %s did not get the report of batch %d of %s; its rows are not affected. Reports are tried again"
            " after %.0f s, and `reports_lost` counts what is lost: %s",
            *(REPORT_TOPIC, topic, batch.batch, batch.query_id, _PAUSE_S, error),
            exc_info=not isinstance(error, KafkaSinkError),
        )
        return None


def _config(config: ProducerConfig, wait_ms: int) -> ProducerConfig:
    """Returns the settings of the rows' producer, without what is about rows. wait_ms: for each step."""
    return replace(
        config,
        key_serializer=None,
        value_serializer=None,
        interceptor_classes=(),
        partitioner_class=None,
        partitioner_ignore_keys=False,
        max_bytes_per_second=None,
        max_records_per_second=None,
        max_request_size=max(config.max_request_size, _MOST_BYTES),
        linger_ms=0,
        max_block_ms=min(config.max_block_ms, wait_ms),
        request_timeout_ms=min(config.request_timeout_ms, wait_ms),
        delivery_timeout_ms=min(config.delivery_timeout_ms, 2 * wait_ms),
    )
