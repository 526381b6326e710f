"""One producer per Python worker and settings, kept over tasks and micro-batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaSinkError

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.send_scope import SendScope
    from spark_kafka_sink.producer.producer import Producer
    from spark_kafka_sink.producer.transactions.transaction_scope import TransactionScope

# Spark ends Python workers that were idle for about a minute; a worker that is busy with something else needs no producer
# longer than that either. The sender's own thread does it: there is no timer here.
IDLE_CLOSE_MS = 60_000


S = TypeVar("S")


class ProducerCache:
    """Producers by their settings; the second of a key is whether it writes in transactions.

    Threads: any may call; the lock guards the dictionary. Processes: pyspark.daemon forks workers, and a child must neither use
    its parent's producers, whose threads it lacks, nor wait for a lock that its parent held: it starts with an empty cache.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._producers: dict[tuple[ProducerConfig, bool], Producer] = {}

    def scope(self, config: ProducerConfig) -> SendScope:
        """A send scope of the settings' producer, which is made when there is none, or only a failed or closed one."""
        return self._opened((config, False), lambda producer: producer.scope())

    def transaction(self, config: ProducerConfig, transactional_id: str) -> TransactionScope:
        """A transaction of the settings' transactional producer, which runs one at a time."""
        return self._opened((config, True), lambda producer: producer.transaction(transactional_id))

    def _opened(self, key: tuple[ProducerConfig, bool], opening: Callable[[Producer], S]) -> S:
        producer = self._usable(key)
        try:
            return opening(producer)
        except KafkaSinkError:
            if not producer.closed:
                raise
        # It closed itself for idleness, or failed, in between. What a new one says is the caller's.
        return opening(self._usable(key))

    def _usable(self, key: tuple[ProducerConfig, bool]) -> Producer:
        from spark_kafka_sink.producer.producer import Producer

        with self._lock:
            self._drop_unusable()
            if key not in self._producers:
                self._producers[key] = Producer(key[0], idle_close_ms=IDLE_CLOSE_MS, transactional=key[1])
            return self._producers[key]

    def _drop_unusable(self) -> None:
        """A failed producer leaves at once, so that the next task does not inherit its error; who holds it gets the error."""
        for key, producer in list(self._producers.items()):
            if producer.closed:
                del self._producers[key]

    def close(self, timeout_s: float = 30.0) -> None:
        """Close all of this process's producers: for programs that use the sink outside of Spark's workers, and for tests."""
        with self._lock:
            producers = list(self._producers.values())
            self._producers.clear()
        with ExitStack() as closing:  # all of them, whatever the others say
            for producer in producers:
                closing.callback(producer.close, timeout_s)


cache = ProducerCache()
