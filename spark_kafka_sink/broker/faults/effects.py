"""The effects of a fault on a request: each effect takes the place of its serving."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from spark_kafka_sink.broker.error_responses import error_response
from spark_kafka_sink.broker.faults.request_filter import SHAPES, IsAffected, merged, split
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.metadata import MetadataResponse

logger = logging.getLogger(__name__)

OF_THE_WHOLE_FETCH: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""Errors that a broker tells of a whole Fetch; it tells all others of partitions."""


def failed_answer(request: Request, asked: Message, code: int, message: str | None) -> Message | None:
    """Returns the answer in which all of `asked` fails; None if there is none, and the connection has to be closed."""
    if request.api.key is ApiKey.FETCH and code not in OF_THE_WHOLE_FETCH:
        body: Any = asked
        return FetchResponse(
            responses=tuple(
                FetchableTopicResponse(
                    topic.topic,
                    topic.topic_id,
                    tuple(PartitionData(partition.partition, code, -1, records=()) for partition in topic.partitions),
                )
                for topic in body.topics
            )
        )
    return error_response(request.api, request.version, asked, code, message)  # type: ignore[arg-type]  # any code at all


def failed_metadata(answer: MetadataResponse, is_affected: IsAffected, code: int) -> Message:
    """Returns metadata with the error beside each topic and with the brokers: without brokers a client could not go on."""
    failed = (replace(topic, error_code=code, partitions=()) for topic in answer.topics if is_affected(topic, None))
    return merged(ApiKey.METADATA, answer, MetadataResponse(topics=tuple(failed)))


Serve = Callable[[Request], None]
Change = Callable[[Any, Any], Message | None]
"""Returns the answer to send instead, from a request's body and its answer; None: the connection is closed."""


class Effect(Protocol):
    """Called on the handler's thread. The answer is handled on the thread that gives it."""

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        """Takes the place of `serve(request)`. `is_affected`: whether the fault is about a topic and partition."""
        ...


@dataclass(frozen=True, slots=True)
class Watch:
    """No effect: `on_request` is given the broker's id and the body of what comes."""

    on_request: Callable[[int, Any], object] | None

    def show(self, broker: int, request: Request) -> None:
        if self.on_request is not None:
            try:
                self.on_request(broker, request.body)
            except Exception:  # a test's own function
                logger.exception("What watches %s failed", request)


@dataclass(frozen=True, slots=True)
class Fail:
    """The affected parts fail, and the others are served. `applied`: the affected ones are, too, and nobody is told."""

    code: int
    message: str | None
    applied: bool

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        key = request.api.key
        if key is ApiKey.METADATA:
            _served_with(request, serve, lambda answer: failed_metadata(answer, is_affected, self.code))
            return
        matched, rest = split(key, request.body, is_affected) if key in SHAPES else (request.body, None)
        failed = failed_answer(request, matched, self.code, self.message)
        if self.applied:
            _served_with(request, serve, lambda answer: _in_place(key, answer, failed))
        else:
            _answered_instead(request, serve, failed, rest)


@dataclass(frozen=True, slots=True)
class Answer:
    """`make` gives the answer of the affected parts, which are not served; the others are."""

    make: Callable[[Any], Message | None]

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        key = request.api.key
        # A Metadata answer tells of the brokers, too, so its parts cannot be made apart.
        has_parts = key in SHAPES and key is not ApiKey.METADATA
        matched, rest = split(key, request.body, is_affected) if has_parts else (request.body, None)
        _answered_instead(request, serve, _tried(self.make, matched, "made"), rest)


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


def _served(request: Request, serve: Serve, take: Callable[[Request, Message | None], None]) -> None:
    """Serves it, and leaves its answer to `take`; None: there is no answer."""

    def taken(answered: Request, answer: Message | None) -> bool:
        take(answered, answer)
        return True

    request.on_response = taken
    serve(request)


def _served_with(request: Request, serve: Serve, changed: Callable[[Any], Message | None]) -> None:
    """Serves it, and sends what `changed` makes of the answer."""

    def deliver(answered: Request, answer: Message | None) -> None:
        new = None if answer is None else _tried(changed, answer, "changed")
        if new is None:
            answered.drop()
        else:
            answered.deliver(new)

    _served(request, serve, deliver)


def _tried(function: Callable[[Any], Message | None], body: Message, done: str) -> Message | None:
    """Returns what a test's own function makes of a message; None if it raises, which the log tells."""
    try:
        return function(body)
    except Exception:
        # Its request may be answered already, so nobody else would end it.
        logger.exception("An answer could not be %s: its connection is closed", done)
        return None


@dataclass(frozen=True, slots=True)
class Alter:
    change: Change

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        _served_with(request, serve, partial(self.change, request.body))


@dataclass(frozen=True, slots=True)
class Delay:
    """Answers later, by the timer: no thread waits, and the connection's next request is not read meanwhile.

    A broker that stops has no timer, so the fetches that its end answers are dropped.
    """

    timer: Callable[[], Timer | None]
    ms: float

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        def later(answered: Request, answer: Message | None) -> None:
            timer = self.timer()
            if timer is None:
                answered.drop()
            else:
                timer.after(self.ms, lambda: answered.deliver(answer))

        _served(request, serve, later)


def cut_before(request: Request, serve: Serve, is_affected: IsAffected) -> None:
    request.close_connection()


def cut_after(request: Request, serve: Serve, is_affected: IsAffected) -> None:
    _served(request, serve, lambda answered, answer: answered.drop())


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cuts the answer. `keep`: bytes of the message after its size."""

    keep: int

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        def deliver(answered: Request, answer: Message | None) -> None:
            if answer is None:
                answered.drop()
            else:
                answered.deliver_part(answer, self.keep)

        _served(request, serve, deliver)


def wrong_correlation_id(request: Request, serve: Serve, is_affected: IsAffected) -> None:
    # Negative where the request's is not: none that the client waits for.
    wrong = -1 - request.header.correlation_id
    _served(request, serve, lambda answered, answer: answered.deliver(answer, correlation_id=wrong))


class Hold:
    """Keeps requests unserved until `release`; with `applied`, their answers. No thread waits.

    The lock guards `_waiting`, which is None after the release. Each connection has one request here at a time.
    """

    def __init__(self, *, applied: bool = False, on_keep: Callable[[], object] = bool) -> None:
        """`on_keep` is called for each request or answer that has to wait."""
        self.applied = applied
        self._on_keep = on_keep
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] | None = []

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        if self.applied:
            request.on_response = self.keep_answer
            serve(request)
        else:
            self._keep(partial(serve, request))

    def keep_answer(self, request: Request, answer: Message | None) -> bool:
        self._keep(lambda: request.deliver(answer))
        return True

    def release(self) -> None:
        """Continues all that waits, in order, in the calling thread."""
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
