"""Handles the bad rows of a task (option `on.error`): counts them, writes their dead letters, and keeps to the limits."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import numpy as np

from spark_kafka_sink.errors import (
    DeadLetterError,
    DeliveryError,
    KafkaSinkError,
    RecordError,
    RecordTooLargeError,
    SchemaError,
    SerializationError,
)
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.producer.base.bad_rows import BadRows, RowNumbers
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.bad_row_limits import too_many
from spark_kafka_sink.spark.plugin_checks import looked_at
from spark_kafka_sink.spark.python_workers import row_name
from spark_kafka_sink.spark.task.dead_letters import (
    Letter,
    Place,
    Reason,
    amended,
    columns_of,
    fitted,
    letters_from,
    letters_of,
    shortened_text,
)
from spark_kafka_sink.spark.task.letter_text import Form
from spark_kafka_sink.spark.task.refused_rows import RefusedRows

if TYPE_CHECKING:
    from spark_kafka_sink.producer.scopes.send_scope import SendScope

logger = logging.getLogger(__name__)

# Letters wait for others, because an append has a fixed cost.
_LETTERS_PER_APPEND: Final = 1000
_BYTES_PER_APPEND: Final = 1 << 20

# Brokers reject many rows if they reject more than one in 8.
_MANY: Final = 8

_BY_COLUMN: Final = {
    "topic": Reason.TOPIC,
    "partition": Reason.PARTITION,
    "timestamp": Reason.TIMESTAMP,
    "headers": Reason.HEADER,
    "traceparent": Reason.HEADER,
}


def reason_of(error: KafkaSinkError, with_schema: frozenset[str] = frozenset()) -> str:
    """Returns the reason under which a bad row is counted. with_schema: the parts, key and value, that have a schema."""
    if "error" in error.facts:  # Kafka's name, from a broker
        return str(error.facts["error"])
    if isinstance(error, SerializationError | SchemaError):
        return (Reason.SCHEMA if error.facts.get("part") in with_schema else Reason.SERIALIZATION).value
    if isinstance(error, RecordTooLargeError):
        return Reason.TOO_LARGE.value
    if isinstance(error, RecordError):
        column = "partition" if error.facts.keys() & {"partition", "partitioner"} else str(error.facts.get("column"))
        return _BY_COLUMN.get(column, Reason.RECORD).value
    return error.code.lower().replace("_", "-")


class _SerializedParts(NamedTuple):
    """The parts of a record, key and value, that the producer serializes, and those of them that have a schema."""

    parts: frozenset[str]
    with_schema: frozenset[str]


class BadRowHandler:
    """The bad rows of a task. Only the task's thread uses it.

    Their letters go through the scope of the task's records, so under exactly-once they are in the same transaction.
    """

    def __init__(
        self,
        scope: SendScope,
        options: SinkOptions,
        place: Place,
        serialized_before: frozenset[str] = frozenset(),
        *,
        fails_at_limit: bool = True,
    ) -> None:
        """serialized_before: the parts, key and value, that the task got as bytes of a serializer.

        fails_at_limit: whether the task fails once it has too many bad rows by itself. Otherwise only the commit does.
        """
        self._scope = scope
        self._serialized_before = serialized_before
        self._errors = options.errors
        self._fails_at_limit = fails_at_limit
        self._place = place
        self._producer = options.producer
        self._counts = Counter[str]()
        self._first = ""
        self._letters: list[Letter] = []
        self._letters_bytes = 0
        self._written = 0
        self._rejected = 0
        self._rejects_many = False
        self._has_awaited = False

    @cached_property
    def _serialized(self) -> _SerializedParts:
        with looked_at(self._producer) as serializers:  # creates those that options name, so it is left to the first bad row
            with_schema = frozenset(part for part, one in serializers.items() if getattr(one, "schema", None) is not None)
            return _SerializedParts(frozenset(serializers), with_schema)

    def refuse(self, refused: RefusedRows) -> None:
        """Counts rows and writes their letters. Raises TooManyBadRowsError at a limit of the task, if it has one."""
        reasons = [reason_of(error, self._serialized.with_schema) for error in refused.errors]
        if not self._first and refused.errors:
            text = f"[{refused.errors[0].code}] {refused.message(0)}"
            row = "" if refused.rows is None or row_name(refused.rows[0]) in text else f" ({row_name(refused.rows[0])})"
            self._first = f"{shortened_text(text)}{row}"
        self._counts.update(reasons)
        most = self._errors.max_rows if self._fails_at_limit else None
        if most is not None and self._counts.total() > most:
            raise too_many(self.report(DeliveryReport()), self._errors, spark_partition=self._place.spark_partition)
        topic = self._errors.topic
        if topic is None:
            return
        if not refused.formats:
            forms = dict.fromkeys(self._serialized_before, [Form.SERIALIZED] * refused.columns.num_records)
            refused = replace(refused, formats=forms)
        for letter in letters_of(refused, reasons, self._place, self._errors.header_prefix, self._serialized.parts):
            found = fitted(letter, self._errors.header_prefix, self._producer)
            if found is None:
                text = f"dead-letter topic {topic}: the headers of a letter alone take more bytes than"
                raise DeadLetterError(f"{text} kafka.max.request.size and kafka.buffer.memory allow; raise them", topic=topic)
            self._add(found)
            self._written += 1

    def refuse_of_append(self, bad: BadRows, rows_in_task: RowNumbers) -> None:
        """Refuses rows that the producer has refused. rows_in_task: returns the task's rows of rows of the append."""
        self.refuse(RefusedRows.of(bad, rows_in_task))

    def refuse_topic(self, topic: str, columns: RecordColumns, rows_in_task: RowNumbers) -> bool:
        """Refuses rows whose topic is the dead-letter topic, where they would be taken for letters. Returns whether it is.

        rows_in_task: returns the task's rows of rows of the columns.
        """
        if topic != self._errors.topic:
            return False
        count = columns.num_records
        error = RecordError(
            f"column topic: {topic} is the dead-letter topic, which takes letters only; name another", column="topic"
        )
        self.refuse(RefusedRows(columns, [topic] * count, [error] * count, rows_in_task(np.arange(count)).tolist()))
        return True

    def take_after_append(self, rows: int, *, is_part: bool) -> None:
        """Takes the rows that brokers have rejected, behind an append of `rows` rows.

        Rows under way are compressed, so they may be more than would be kept if brokers reject them. So while brokers reject
        many, the outcome of each append is awaited. So is that of the first part of a large append, because the topic may reject
        all rows.

        is_part: whether the append was one part of a large one.
        """
        before = self._rejected
        if self._rejects_many or (is_part and not self._has_awaited):
            self._has_awaited = True
            self.settle()
        else:
            self._take_rejected()
        self._rejects_many = (self._rejected - before) * _MANY > rows

    def _take_rejected(self) -> bool:
        """Refuses the rows that brokers have rejected, and mends rejected letters. Returns whether there were any."""
        rejected = self._scope.take_rejected()
        for each in rejected:
            self._rejected += each.columns.num_records
            self._take(each)
        return bool(rejected)

    def settle(self) -> None:
        """Waits until all rows and letters are acknowledged.

        Raises:
            DeadLetterError: A letter cannot be written.
            DeliveryError, FlushTimeoutError: As `SendScope.flush`.
        """
        while True:
            self._send()
            try:
                self._scope.flush()
            except KafkaSinkError as error:
                self.raise_named(error)
            if not self._take_rejected():
                return

    def report(self, report: DeliveryReport) -> DeliveryReport:
        """Returns the report of the scope with the counts of bad rows."""
        return replace(report, bad_rows=dict(self._counts), dead_letters=self._written, bad_row_example=self._first)

    def log(self) -> None:
        """Logs one warning if the task had bad rows."""
        if self._counts:
            where = f"Spark partition {self._place.spark_partition}" if self._place.spark_partition >= 0 else "this task"
            logger.warning("%s has %s; the first: %s", where, self.report(DeliveryReport()).bad_rows_text(), self._first)

    def _take(self, bad: BadRows) -> None:
        if bad.topic != self._errors.topic:
            self.refuse(RefusedRows.of(bad))
            return
        for letter in letters_from(bad.columns, self._errors.header_prefix):
            found = amended(letter, bad.error)
            if found is None:
                raise _dead_letter_error(bad.topic, bad.error) from bad.error
            self._add(found)

    def _add(self, letter: Letter) -> None:
        self._letters.append(letter)
        self._letters_bytes += letter.size(self._errors.header_prefix)
        if len(self._letters) >= _LETTERS_PER_APPEND or self._letters_bytes >= _BYTES_PER_APPEND:
            self._send()

    def _send(self) -> None:
        if not self._letters:
            return
        assert self._errors.topic is not None
        letters, self._letters, self._letters_bytes = self._letters, [], 0
        try:
            self._scope.append_serialized(self._errors.topic, columns_of(letters, self._errors.header_prefix), may_be_large=True)
        except KafkaSinkError as error:
            self.raise_named(error)

    def raise_named(self, error: KafkaSinkError) -> NoReturn:
        """Raises DeadLetterError for an error about the dead-letter topic, which any call of the scope may raise, or `error`."""
        topic = self._errors.topic
        cause = error.__cause__ if isinstance(error, DeliveryError) else error
        if topic is None or not isinstance(cause, KafkaSinkError) or not _is_about(cause, topic):
            raise error
        raise _dead_letter_error(topic, cause) from error


def _is_about(error: KafkaSinkError, topic: str) -> bool:
    known = error.facts.get("topic")
    return known == topic if known is not None else re.search(rf"\btopic {re.escape(topic)}(?![\w.-])", error.message) is not None


def _dead_letter_error(topic: str, error: KafkaSinkError) -> DeadLetterError:
    facts = {"error": error.facts["error"]} if "error" in error.facts else {}
    return DeadLetterError(
        f"dead-letter topic {topic}: a bad row could not be written to it, so the task fails: {error}", topic=topic, **facts
    )
