"""Interceptors for tests: one that keeps what it was told, and ones that go wrong."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyspark import TaskContext

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.base.producer_record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.interceptors import ColumnsMetadata, ProducerInterceptor
from spark_kafka_sink.records.columns import RecordColumns


class Recording(ProducerInterceptor):
    """Keeps each call, with its name; `shared`: a list that several of them write to."""

    def __init__(self, name: str = "", shared: list[tuple[str, str]] | None = None) -> None:
        self.name = name
        self.shared = [] if shared is None else shared
        self.settings: list[Mapping[str, object]] = []
        self.sent: list[ProducerRecord] = []
        self.sent_columns: list[tuple[str, RecordColumns]] = []
        self.ends: list[tuple[RecordMetadata, KafkaSinkError | None]] = []
        self.column_ends: list[tuple[ColumnsMetadata, KafkaSinkError | None]] = []
        self.closes = 0
        self._lock = threading.Lock()

    def _call(self, what: str) -> None:
        self.shared.append((self.name, what))

    def configure(self, settings: Mapping[str, object]) -> None:
        self._call("configure")
        self.settings.append(settings)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        with self._lock:
            self._call("on_send")
            self.sent.append(record)
        return record

    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        with self._lock:
            self._call("on_send_columns")
            self.sent_columns.append((topic, columns))
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        with self._lock:
            self._call("on_acknowledgement")
            self.ends.append((metadata, error))

    def on_acknowledgement_columns(self, metadata: ColumnsMetadata, error: KafkaSinkError | None) -> None:
        with self._lock:
            self._call("on_acknowledgement_columns")
            self.column_ends.append((metadata, error))

    def close(self) -> None:
        self._call("close")
        self.closes += 1

    # What a test asks

    def rows(self, kind: type[KafkaSinkError] | None) -> int:
        """How many rows of columns were acked (None), or failed with such an error."""
        return sum(m.num_records for m, e in self.column_ends if (e is None if kind is None else isinstance(e, kind)))


class Appending(Recording):
    """Adds its name to each value."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        super().on_send(record)
        return dataclasses.replace(record, value=record.value + self.name.encode())


class Redirecting(Recording):
    """Gives each record another topic, value, key, partition, timestamp and headers."""

    def __init__(self, **others: Any) -> None:
        super().__init__()
        self.others = others

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        super().on_send(record)
        return dataclasses.replace(record, **self.others)


class Raising(Recording):
    """Raises whatever it is asked."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error or ZeroDivisionError()

    def _call(self, what: str) -> None:
        super()._call(what)
        if what != "configure":
            raise self.error


class WrongType(ProducerInterceptor):
    """Returns what is no record, and no columns."""

    def on_send(self, record: ProducerRecord) -> Any:
        return None

    def on_send_columns(self, topic: str, columns: RecordColumns) -> Any:
        return [columns]


class Unconfigured(ProducerInterceptor):
    def configure(self, settings: Mapping[str, object]) -> None:
        raise RuntimeError("no such setting")


class SlowFirstTask(ProducerInterceptor):
    """For a Spark task: the rows of the first task take 5 s."""

    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0:
            time.sleep(5)
        return columns
