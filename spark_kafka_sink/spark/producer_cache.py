"""One producer per Python worker and settings, kept over tasks and micro-batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.spark.producer_key import ProducerKey

if TYPE_CHECKING:
    from spark_kafka_sink.producer.producer import Producer
    from spark_kafka_sink.producer.scopes.send_scope import SendScope
    from spark_kafka_sink.producer.scopes.transaction_scope import TransactionScope

# As long as Java keeps an idle connection (connections.max.idle.ms). Spark ends a Python worker that was idle for a minute, and
# its producer with it; this is for workers that other queries keep busy between two batches of this one: with its producer a
# worker keeps its producer ids and transactional ids, which brokers remember for a day and for a week. The sender's own thread
# closes it: there is no timer here.
IDLE_CLOSE_MS = 540_000
# Of a process. More than these end as soon as no task uses them, the one not used for longest first.
MOST_PRODUCERS = 8


S = TypeVar("S")


class ProducerCache:
    """Producers by their settings and by whether they write in transactions.

    Threads: any may call; the lock guards the dictionary. Processes: pyspark.daemon forks workers, and a child must neither use
    its parent's producers, whose threads it lacks, nor wait for a lock that its parent held: it starts with an empty cache.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._producers: dict[ProducerKey, Producer] = {}

    def scope(self, config: ProducerConfig) -> SendScope:
        """A send scope of the settings' producer, which is made when there is none, or only a failed or closed one."""
        return self._opened(config, False, lambda producer: producer.scope())

    def transaction(self, config: ProducerConfig, transactional_id: str) -> TransactionScope:
        """A transaction of the settings' transactional producer, which runs one at a time."""
        return self._opened(config, True, lambda producer: producer.transaction(transactional_id))

    def _opened(self, config: ProducerConfig, transactional: bool, opening: Callable[[Producer], S]) -> S:
        key = ProducerKey.of(config, transactional)
        producer = self._usable(key, config, transactional)
        try:
            return opening(producer)
        except KafkaSinkError:
            if not producer.closed:
                raise
        # It closed itself for idleness, or failed, in between. What a new one says is the caller's.
        return opening(self._usable(key, config, transactional))

    def _usable(self, key: ProducerKey, config: ProducerConfig, transactional: bool) -> Producer:
        from spark_kafka_sink.producer.producer import Producer

        with self._lock:
            self._drop_unusable()
            producer = self._producers.pop(key, None)
            if producer is None:
                producer = Producer(config, idle_close_ms=IDLE_CLOSE_MS, transactional=transactional)
            self._producers[key] = producer  # at the end: the first is the one not used for longest
            for other in list(self._producers.values())[:-MOST_PRODUCERS]:
                other.close_when_idle()
            return producer

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
