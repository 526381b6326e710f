"""The share of a producer that records sent one by one have: their failures belong to their futures, not to a task."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.lifecycle import Lifecycle


class RecordScope:
    """One per producer and topic. A failed batch is told to its records' futures, and harms nobody else. Any thread may wait."""

    def __init__(self, lifecycle: Lifecycle, topic: str) -> None:
        self._lifecycle = lifecycle
        self.topic = topic
        self.tally = Tally(keeps_error=False)
        self.check_process = lifecycle.check_process
        self.told = self.tally.told

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None, late: Callable[[float], KafkaSinkError]) -> None:
        """Returns once `done()`; raises `late(seconds)` after `timeout_s`, or what keeps the producer from ever getting there."""
        self._lifecycle.check_may_wait()
        self.tally.wait_until(done, timeout_s, late, self._lifecycle.check_alive)
