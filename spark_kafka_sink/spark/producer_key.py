"""When two tasks of a worker may share a producer: their settings are the same, as far as Spark's pickles can tell."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from pyspark import Accumulator, Broadcast
from pyspark.cloudpickle import CloudPickler

from spark_kafka_sink.config import ProducerConfig

_PLAIN = (str, int, float, type, type(None))


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """What a producer is found by.

    Spark pickles a function or an object anew for each task, so identity would make a producer for each. What was pickled to the
    same bytes is the same, and what its own __eq__ says.
    """

    plain: tuple[object, ...]
    plugins: tuple[_Plugin, ...]

    @classmethod
    def of(cls, config: ProducerConfig, transactional: bool) -> ProducerKey:
        values = list(_values(config))
        plain = (transactional, *(value if isinstance(value, _PLAIN) else type(value) for value in values))
        return cls(plain, tuple(_Plugin(value) for value in values if not isinstance(value, _PLAIN)))


def _values(config: ProducerConfig) -> Iterator[object]:
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, tuple):
            yield len(value)
            yield from value
        else:
            yield value


class _Plugin:
    """An object among the settings, as it was before it was used."""

    def __init__(self, value: object) -> None:
        self._value = value
        self._pickled = _pickled(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Plugin):
            return NotImplemented
        if self._pickled is not None and self._pickled == other._pickled:
            return True
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return 0  # the plain settings tell most keys apart


class _Pickler(CloudPickler):
    """Spark's own, for what is compared only and never loaded."""

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, Accumulator):
            # Each task has one of its own, whose sum Spark fetches at the task's end: with another task's it would be lost.
            raise TypeError("accumulators are not shared by tasks")
        if isinstance(obj, Broadcast):
            # A worker has one object for each, and may not pickle it.
            return id, (id(obj),)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def _pickled(value: object) -> bytes | None:
    """A digest, as keys are kept for as long as producers; None for what cannot be pickled, and for what belongs to one task."""
    data = io.BytesIO()
    try:
        _Pickler(data).dump(value)  # type: ignore[no-untyped-call]
    except Exception:  # whatever a program's class raises
        return None
    return hashlib.blake2b(data.getbuffer()).digest()
