"""Keeps one producer per Python worker and settings across tasks and micro-batches."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.accumulators import Accumulator
from pyspark.cloudpickle import CloudPickler

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.options.producer_options import ProducerConfig

if TYPE_CHECKING:
    from spark_kafka_sink.producer.producer import Producer
    from spark_kafka_sink.producer.scopes.send_scope import SendScope, TransactionScope

# As long as Java keeps an idle connection (connections.max.idle.ms). Spark ends a Python worker, and its producer, after an idle
# minute. This is for workers that other queries keep busy between two batches of this one: the producer keeps its producer and
# transactional ids, which brokers remember for a day and a week. The sender's thread closes it, so there is no timer here.
IDLE_CLOSE_MS = 540_000
# Per process. Beyond this number, the least recently used producers close as soon as no task uses them.
MOST_PRODUCERS = 8

S = TypeVar("S")


class ProducerCache:
    """Producers by their settings and by whether they write in transactions.

    Threads: any may call; the lock guards the dictionary. Processes: pyspark.daemon forks workers. A child starts with an empty
    cache, because it lacks the threads of its parent's producers and must not wait for a lock that its parent held.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._producers: dict[ProducerKey, Producer] = {}
        self._in_transaction: set[ProducerKey] = set()

    def scope(self, config: ProducerConfig, *, keeps_rejected: bool = False) -> SendScope:
        """Returns a send scope of the settings' producer, and creates the producer if there is no usable one.

        keeps_rejected: as in `Producer.scope`.
        """
        key = ProducerKey.of(config, False)
        return self._opened(key, config, lambda producer: producer.scope(keeps_rejected=keeps_rejected))

    @contextmanager
    def transaction(
        self, config: ProducerConfig, transactional_id: str, *, keeps_rejected: bool = False
    ) -> Iterator[TransactionScope]:
        """A block with a transaction of a transactional producer of these settings, which no other block uses at that time.

        A producer has one transaction at a time, so each thread that writes in one needs its own.
        """
        first = ProducerKey.of(config, True)
        with self._lock:
            key = next(key for key in (replace(first, number=number) for number in count()) if key not in self._in_transaction)
            self._in_transaction.add(key)
        try:
            opened = self._opened(
                key, config, lambda producer: producer.transaction(transactional_id, keeps_rejected=keeps_rejected)
            )
            with opened as scope:
                yield scope
        finally:
            with self._lock:
                self._in_transaction.discard(key)

    def _opened(self, key: ProducerKey, config: ProducerConfig, opening: Callable[[Producer], S]) -> S:
        producer = self._usable(key, config)
        try:
            return opening(producer)
        except KafkaSinkError:
            if not producer.closed:
                raise
        # It closed itself for idleness, or failed, in the meantime. An error of the new one goes to the caller.
        return opening(self._usable(key, config))

    def _usable(self, key: ProducerKey, config: ProducerConfig) -> Producer:
        from spark_kafka_sink.producer.producer import Producer

        with self._lock:
            # A failed producer is dropped, so that the next task does not inherit its error. The tasks that use it get the error.
            self._producers = {key: each for key, each in self._producers.items() if not each.closed}
            producer = self._producers.pop(key, None)
            if producer is None:
                producer = Producer(config, idle_close_ms=IDLE_CLOSE_MS, transactional=key.transactional)
            self._producers[key] = producer  # at the end: the first is the least recently used
            for other in list(self._producers.values())[:-MOST_PRODUCERS]:
                other.close_when_idle()
            return producer

    def close(self, timeout_s: float = 30.0) -> None:
        """Closes all producers of this process, for programs that use the sink outside of Spark's workers, and for tests."""
        with self._lock:
            producers = list(self._producers.values())
            self._producers.clear()
        with ExitStack() as closing:  # closes all of them, whatever the others raise
            for producer in producers:
                closing.callback(producer.close, timeout_s)


cache = ProducerCache()


# Two tasks of a worker share a producer if their settings have the same pickles.

_PLAIN = (str, int, float, type, type(None))


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """The key of a producer in the cache.

    Spark pickles a function or an object for each task, so comparing identities would make a producer for each task. Two objects
    are the same if they were pickled to the same bytes, or if their own __eq__ says so.

    number: tells apart producers of the same settings whose transactions are open at the same time, from 0.
    """

    transactional: bool
    plain: tuple[object, ...]
    plugins: tuple[_Plugin, ...]
    number: int = 0

    @classmethod
    def of(cls, config: ProducerConfig, transactional: bool) -> ProducerKey:
        values: list[object] = []
        for field in fields(config):
            value = getattr(config, field.name)
            values += (len(value), *value) if isinstance(value, tuple) else (value,)
        plain = tuple(value if isinstance(value, _PLAIN) else type(value) for value in values)
        return cls(transactional, plain, tuple(_Plugin(value) for value in values if not isinstance(value, _PLAIN)))


class _Plugin:
    """An object among the settings, as it was before it was used.

    Only a digest of its pickle is kept, because keys live as long as producers. The digest is None for an object that cannot be
    pickled or belongs to one task.
    """

    def __init__(self, value: object) -> None:
        self._value = value
        data = io.BytesIO()
        try:
            _Pickler(data).dump(value)  # type: ignore[no-untyped-call]
            self._pickled: bytes | None = hashlib.blake2b(data.getbuffer()).digest()
        except Exception:  # a program's class may raise anything
            self._pickled = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Plugin):
            return NotImplemented
        if self._pickled is not None and self._pickled == other._pickled:
            return True
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return 0  # the plain settings tell most keys apart


class _Pickler(CloudPickler):
    """Spark's own pickler, for objects that are only compared and never loaded."""

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, Accumulator):
            # Each task has its own, whose sum Spark fetches at the task's end. In another task's producer it would be lost.
            raise TypeError("accumulators are not shared by tasks")
        if type(obj).__module__ == "pyspark.core.broadcast":  # which the package pyspark-client lacks
            # A worker has one object for each, and may not pickle it.
            return id, (id(obj),)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
