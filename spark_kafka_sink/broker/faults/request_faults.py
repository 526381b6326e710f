"""Which fault, if any, a request meets on its way to its handler."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.faults.asked_parts import SHAPES, Wanted, asks_for, name_or_id
from spark_kafka_sink.broker.faults.effects import Answer, Effect, Fail, Hold, Serve, Watch
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.broker.faults.scope import Scope
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)


class RequestFault(NamedTuple):
    scope: Scope
    effect: Effect | Watch
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

    def add(self, scope: Scope, effect: Effect | Watch, fault: Fault) -> None:
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

    def arrived(self, broker: int, request: Request) -> None:
        with self._changed:
            self._seen[broker, request.api.key] += 1

    def watch(self, broker: int, request: Request) -> None:
        """Let those that only watch see it."""
        for scope, effect, fault in self._faults:
            if isinstance(effect, Watch) and self._is_about(scope, effect, broker, request) and fault.hit():
                _show(effect, broker, request)

    def met(self, broker: int, request: Request) -> tuple[Effect, Wanted] | None:
        """What the request meets there: the oldest fault that is about it and not over."""
        for scope, effect, fault in self._faults:
            if isinstance(effect, Watch) or fault.is_over:
                continue
            if self._is_about(scope, effect, broker, request) and fault.hit():
                return effect, scope.wanted(self._topic_of)
        return None

    def _is_about(self, scope: Scope, effect: Effect | Watch, broker: int, request: Request) -> bool:
        if not scope.matches(broker, request, self._topic_of):
            return False
        if not isinstance(effect, (Fail, Answer)) or request.api.key not in SHAPES:
            return True
        # One that asks for no partition, as a Metadata request for brokers alone, has nothing that could fail.
        return asks_for(request.api.key, request.body, scope.wanted(self._topic_of))

    def _topic_of(self, topic: object) -> str | None:
        known = name_or_id(topic)
        return known if isinstance(known, str) else self._image().names.get(known)


def _show(watch: Watch, broker: int, request: Request) -> None:
    if watch.on_request is None:
        return
    try:
        watch.on_request(broker, request.body)
    except Exception:
        logger.exception("What watches %s failed", request)


def _everything(topic: object, partition: int | None) -> bool:
    return True


class BrokerFaults:
    """Those of one broker: the `Faults` of its KafkaApis."""

    def __init__(self, faults: RequestFaults, broker: int) -> None:
        self._faults = faults
        self._broker = broker

    def handle(self, request: Request, serve: Serve) -> None:
        self._faults.arrived(self._broker, request)
        silence = self._faults.silence_of(self._broker)
        if silence is None:
            self._take(serve, request)
        else:
            silence(request, partial(self._take, serve), _everything)

    def _take(self, serve: Serve, request: Request) -> None:
        self._faults.watch(self._broker, request)
        self._meet(serve, request)

    def _meet(self, serve: Serve, request: Request) -> None:
        met = self._faults.met(self._broker, request)
        if met is None:
            request.on_answer = self._answered
            serve(request)
            return
        effect, wanted = met
        if isinstance(effect, Hold) and not effect.applied:
            effect(request, partial(self._meet, serve), wanted)
        else:
            effect(request, serve, wanted)

    def _answered(self, request: Request, answer: Message | None) -> bool:
        silence = self._faults.silence_of(self._broker)
        return silence is not None and silence.keep_answer(request, answer)
