"""Which fault, if any, a request meets on its way to its handler."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.faults.asked_parts import SHAPES, Wanted, asks_for, name_or_id
from spark_kafka_sink.broker.faults.effects import Effect, Fail, Hold, Serve
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.broker.faults.scope import Scope
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message


class RequestFault(NamedTuple):
    """`effect`: None only counts."""

    scope: Scope
    effect: Effect | None
    fault: Fault


class RequestFaults:
    """Asked by the handlers' threads of all brokers; faults are added and removed by any thread.

    `_changed` guards the counts and who replaces `_faults` and `_silent`, which are replaced whole and read without it.
    """

    def __init__(self, changed: threading.Condition, image: Callable[[], MetadataImage]) -> None:
        self._changed = changed
        self._image = image
        self._faults: tuple[RequestFault, ...] = ()
        self._silent: dict[int, Hold] = {}
        self._seen: Counter[tuple[int, ApiKey]] = Counter()

    def add(self, scope: Scope, effect: Effect | None, fault: Fault) -> None:
        with self._changed:
            going_on = (kept for kept in self._faults if not kept.fault.is_over)
            self._faults = (*going_on, RequestFault(scope, effect, fault))

    def remove(self, fault: Fault) -> None:
        with self._changed:
            self._faults = tuple(kept for kept in self._faults if kept.fault is not fault)

    def silence(self, broker: int, hold: Hold) -> None:
        """Its requests are held, and the answers to those that it serves already."""
        with self._changed:
            self._silent = {**self._silent, broker: hold}

    def end_silence(self, hold: Hold) -> None:
        with self._changed:
            self._silent = {broker: kept for broker, kept in self._silent.items() if kept is not hold}

    def silence_of(self, broker: int) -> Hold | None:
        return self._silent.get(broker)

    def seen(self, api: ApiKey, broker: int | None) -> int:
        with self._changed:
            return sum(count for (at, key), count in self._seen.items() if key is api and broker in (None, at))

    def met(self, broker: int, request: Request) -> tuple[Effect, Wanted] | None:
        """What the request meets there: the oldest fault that is about it and not over. Those that only watch count it, too."""
        with self._changed:
            self._seen[broker, request.api.key] += 1
        silence = self._silent.get(broker)
        if silence is not None:
            return silence, _everything
        met = None
        for scope, effect, fault in self._faults:
            counts = effect is None or met is None
            if counts and self._is_about(scope, effect, broker, request) and fault.hit() and effect is not None:
                met = effect, scope.wanted(self._topic_of)
        return met

    def _is_about(self, scope: Scope, effect: Effect | None, broker: int, request: Request) -> bool:
        if not scope.matches(broker, request, self._topic_of):
            return False
        if not isinstance(effect, Fail) or request.api.key not in SHAPES:
            return True
        # One that asks for no partition, as a Metadata request for brokers alone, has nothing that could fail.
        return asks_for(request.api.key, request.body, scope.wanted(self._topic_of))

    def _topic_of(self, topic: object) -> str | None:
        known = name_or_id(topic)
        return known if isinstance(known, str) else self._image().names.get(known)


def _everything(topic: object, partition: int | None) -> bool:
    return True


class BrokerFaults:
    """Those of one broker: the `Faults` of its KafkaApis."""

    def __init__(self, faults: RequestFaults, broker: int) -> None:
        self._faults = faults
        self._broker = broker

    def handle(self, request: Request, serve: Serve) -> None:
        met = self._faults.met(self._broker, request)
        if met is None:
            request.on_answer = self._answered
            serve(request)
        else:
            effect, wanted = met
            effect(request, serve, wanted)

    def _answered(self, request: Request, answer: Message | None) -> bool:
        silence = self._faults.silence_of(self._broker)
        return silence is not None and silence.keep_answer(request, answer)
