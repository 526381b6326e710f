"""What a test's callbacks were told, and the life of a producer that is none."""

from __future__ import annotations

import threading
from typing import Any

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.base.producer_record import OnCompletion, RecordMetadata
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, TopicWaiter
from tests.waiting import DEADLINE_S


class Told:
    """Each end of a record, in the order in which callbacks heard of it. Any thread may call."""

    def __init__(self) -> None:
        self.ends: list[tuple[Any, RecordMetadata, KafkaSinkError | None]] = []
        self.threads: list[int] = []
        self._changed = threading.Condition()

    def of(self, record: object) -> OnCompletion:
        """A callback for a record that goes by this name."""

        def told(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            with self._changed:
                self.ends.append((record, metadata, error))
                self.threads.append(threading.get_ident())
                self._changed.notify_all()

        return told

    @property
    def records(self) -> list[Any]:
        return [record for record, _, _ in self.ends]

    @property
    def errors(self) -> list[KafkaSinkError | None]:
        return [error for _, _, error in self.ends]

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ends) >= count, DEADLINE_S), f"{len(self.ends)} of {count} ended"


class NeverEnding(Lifecycle):
    """Of a producer that has no sender's thread, and goes on without; it never has an answer."""

    is_running = True


def waiter(topic: str = "t") -> TopicWaiter:
    return TopicWaiter(NeverEnding(lambda: None), topic)


def future(callback: OnCompletion | None = None, topic: str = "t") -> RecordFuture:
    """Of a record with a timestamp of 5 and a value of one byte."""
    return RecordFuture(waiter(topic), 5, -1, 1, callback)
