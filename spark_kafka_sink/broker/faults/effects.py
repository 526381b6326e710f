"""What a fault does to a request: each takes the place of its serving."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from spark_kafka_sink.broker.faults.asked_parts import SHAPES, Wanted, merged, split
from spark_kafka_sink.broker.faults.failed_answers import failed_answer, failed_metadata
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)

Serve = Callable[[Request], None]
Change = Callable[[Any, Any], Message | None]
"""Given a request's body and its answer to what is answered instead; None: the connection is closed."""


class Effect(Protocol):
    """Called on the handler's thread; what it does with the answer is called on whichever gives that."""

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        """`wanted`: the partitions, or topics, that it is about."""
        ...


@dataclass(frozen=True, slots=True)
class Watch:
    """No effect: `on_request` is given the broker's id and the body of what comes."""

    on_request: Callable[[int, Any], object] | None


@dataclass(frozen=True, slots=True)
class Fail:
    """The wanted parts fail, and the others are served. `applied`: the wanted ones are, too, and nobody is told."""

    code: int
    message: str | None
    applied: bool

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        key = request.api.key
        if key is ApiKey.METADATA:
            _served_with(request, serve, lambda answer: failed_metadata(answer, wanted, self.code))
            return
        matched, rest = split(key, request.body, wanted) if key in SHAPES else (request.body, None)
        failed = failed_answer(request, matched, self.code, self.message)
        if self.applied:
            _served_with(request, serve, lambda answer: _in_place(key, answer, failed))
        else:
            _answered_instead(request, serve, failed, rest)


@dataclass(frozen=True, slots=True)
class Answer:
    """`make` gives the answer of the wanted parts, which are not served; the others are."""

    make: Callable[[Any], Message | None]

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        key = request.api.key
        # A Metadata answer tells of the brokers, too, so its parts cannot be made apart.
        has_parts = key in SHAPES and key is not ApiKey.METADATA
        matched, rest = split(key, request.body, wanted) if has_parts else (request.body, None)
        _answered_instead(request, serve, _tried(self.make, matched), rest)


def _answered_instead(request: Request, serve: Serve, answer: Message | None, rest: Message | None) -> None:
    """`answer` takes the place of what was asked, but for `rest`, which is served."""
    if answer is None:
        request.close_connection()
    elif rest is None:
        request.answer(answer)
    else:
        request.body = rest
        _served_with(request, serve, lambda served: _in_place(request.api.key, served, answer))


def _in_place(key: ApiKey, answer: Message, failed: Message | None) -> Message | None:
    return failed if failed is None or key not in SHAPES else merged(key, answer, failed)


def _served_with(request: Request, serve: Serve, changed: Callable[[Any], Message | None]) -> None:
    """Serve it, and send what `changed` makes of the answer."""

    def deliver(answered: Request, answer: Message | None) -> bool:
        new = None if answer is None else _tried(changed, answer)
        if new is None:
            answered.drop()
        else:
            answered.deliver(new)
        return True

    request.on_answer = deliver
    serve(request)


def _tried(made: Callable[[Any], Message | None], of: Message) -> Message | None:
    try:
        return made(of)
    except Exception:
        # A test's own function. Its request may be answered already, so nobody else would end it.
        logger.exception("An answer could not be made: its connection is closed")
        return None


@dataclass(frozen=True, slots=True)
class Alter:
    change: Change

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        _served_with(request, serve, partial(self.change, request.body))


@dataclass(frozen=True, slots=True)
class Delay:
    """By the timer: no thread waits, and the connection's next request is not read meanwhile. A broker that stops has none: the
    fetches that its end answers are dropped."""

    timer: Callable[[], Timer | None]
    ms: float

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        def later(answered: Request, answer: Message | None) -> bool:
            timer = self.timer()
            if timer is None:
                answered.drop()
            else:
                timer.after(self.ms, lambda: answered.deliver(answer))
            return True

        request.on_answer = later
        serve(request)


def cut_before(request: Request, serve: Serve, wanted: Wanted) -> None:
    request.close_connection()


def cut_after(request: Request, serve: Serve, wanted: Wanted) -> None:
    def drop(answered: Request, answer: Message | None) -> bool:
        answered.drop()
        return True

    request.on_answer = drop
    serve(request)


@dataclass(frozen=True, slots=True)
class Truncate:
    """`keep`: bytes of the message behind its size."""

    keep: int

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        def deliver(answered: Request, answer: Message | None) -> bool:
            if answer is None:
                answered.drop()
            else:
                answered.deliver_part(answer, self.keep)
            return True

        request.on_answer = deliver
        serve(request)


def wrong_correlation_id(request: Request, serve: Serve, wanted: Wanted) -> None:
    def deliver(answered: Request, answer: Message | None) -> bool:
        # Negative where the request's is not: none that the client waits for.
        answered.deliver(answer, correlation_id=-1 - answered.header.correlation_id)
        return True

    request.on_answer = deliver
    serve(request)


class Hold:
    """Requests wait here, unserved, until `release`; with `applied` their answers do. No thread waits. The lock guards
    `_waiting`, which is None once it is released; each connection has one request here at a time."""

    def __init__(self, *, applied: bool = False, on_keep: Callable[[], object] = bool) -> None:
        """`on_keep`: called for each that has to wait."""
        self.applied = applied
        self._on_keep = on_keep
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] | None = []

    def __call__(self, request: Request, serve: Serve, wanted: Wanted) -> None:
        if self.applied:
            request.on_answer = self.keep_answer
            serve(request)
        else:
            self._keep(partial(serve, request))

    def keep_answer(self, request: Request, answer: Message | None) -> bool:
        self._keep(lambda: request.deliver(answer))
        return True

    def release(self) -> None:
        """In the order in which they came, in the thread that calls."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
        for go_on in waiting or ():
            go_on()

    def _keep(self, go_on: Callable[[], None]) -> None:
        with self._lock:
            is_held = self._waiting is not None
            if self._waiting is not None:
                self._waiting.append(go_on)
        if is_held:
            self._on_keep()
        else:
            go_on()
