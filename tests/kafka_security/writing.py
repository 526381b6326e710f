"""Numbered records that our client writes and confluent-kafka reads back."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import pytest

from spark_kafka_sink import Producer
from spark_kafka_sink.errors import KafkaSinkError
from tests.kafka.witness import read_topic
from tests.kafka_security.secure_kafka import SecureKafka
from tests.waiting import HOUR_MS, until

TIMEOUT_S = 20.0


def write(settings: Mapping[str, object], topic: str, count: int = 3) -> None:
    """Writes the numbers from 0 on; raises the first error."""
    with Producer(settings) as producer:
        producer.send(topic, "0").result(TIMEOUT_S)  # first, as each send that fails may take a while
        for future in [producer.send(topic, str(number)) for number in range(1, count)]:
            future.result(TIMEOUT_S)


def numbers(kafka: SecureKafka, topic: str) -> list[int]:
    """What is in the topic, in order of offset."""
    return [int(record.value or b"-1") for record in read_topic(kafka.direct_servers, topic)]


def refusal(settings: Mapping[str, object], topic: str) -> KafkaSinkError:
    """Returns why nothing can be written; fails if that is told only when the time is over."""
    with pytest.raises(KafkaSinkError) as caught:
        write({"max.block.ms": HOUR_MS, "delivery.timeout.ms": HOUR_MS, **settings}, topic)
    return caught.value


class Load:
    """Writes numbers without a pause in a thread of its own from the start of a `with` to its end."""

    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        self.written = 0
        self.error: BaseException | None = None
        self._topic = topic
        self._producer = Producer(settings)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join(TIMEOUT_S)
        self._producer.close(TIMEOUT_S)

    def wait_for(self, seconds: float) -> None:
        """Lets it run for that long, or until something fails."""
        deadline = time.monotonic() + seconds
        while self.error is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def wait_until_written(self, count: int) -> None:
        """Returns when as many records have been acked, or when something has failed."""
        until(lambda: self.written, lambda written: self.error is not None or written >= count, f"{count} records acked")

    def figure(self, name: str) -> float:
        """Returns one of the producer's metrics."""
        return self._producer.metrics()["producer-metrics"][name]

    def _run(self) -> None:
        try:
            number = 0
            while not self._ending.is_set():
                futures = [self._producer.send(self._topic, str(each)) for each in range(number, number + 100)]
                for future in futures:
                    future.result(TIMEOUT_S)
                number = self.written = number + len(futures)
        except BaseException as error:
            self.error = error
