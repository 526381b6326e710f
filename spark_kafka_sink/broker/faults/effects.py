"""The effects of faults on requests. An effect runs in place of the handler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from spark_kafka_sink.broker.error_responses import error_response, failed_fetch
from spark_kafka_sink.broker.faults.request_filter import SHAPES, IsAffected, merged, split
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchResponse
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)

OF_THE_WHOLE_FETCH: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""Errors that a broker reports for a whole Fetch; all others belong to partitions."""


def failed_answer(request: Request, asked: Message, code: int, message: str | None) -> Message | None:
    """Returns the response in which all of `asked` fails; None if there is none and the connection must be closed."""
    if request.api.key is ApiKey.FETCH and code not in OF_THE_WHOLE_FETCH:
        return FetchResponse(responses=failed_fetch(asked, code))
    return error_response(request.api, request.version, asked, code, message)  # type: ignore[arg-type]  # any code at all


def _failed_metadata(answer: MetadataResponse, is_affected: IsAffected, code: int) -> Message:
    """Returns metadata that has the error beside each topic and lists the brokers, without which a client could not continue."""
    failed = (replace(topic, error_code=code, partitions=()) for topic in answer.topics if is_affected(topic, None))
    return merged(ApiKey.METADATA, answer, MetadataResponse(topics=tuple(failed)))


Serve = Callable[[Request], None]
Change = Callable[[Any, Any], Message | None]
"""Returns the response to send instead, given a request's body and its response. None: the connection is closed."""


Effect = Callable[[Request, Serve, IsAffected], None]
"""An effect of a fault, called on the handler's thread in place of serving the request. The thread that answers handles the
response. The last argument returns whether the fault covers a topic and partition.
"""


@dataclass(frozen=True, slots=True)
class Watch:
    """Has no effect; `on_request` is called with the broker's id and the body of each request."""

    on_request: Callable[[int, Any], object] | None

    def show(self, broker: int, request: Request) -> None:
        if self.on_request is not None:
            try:
                self.on_request(broker, request.body)
            except Exception:  # the test's own function
                logger.exception("The on_request function that watches %s failed", request)


@dataclass(frozen=True, slots=True)
class Fail:
    """Fails the affected parts and serves the others. `applied`: also serves the affected parts without reporting it."""

    code: int
    message: str | None
    applied: bool

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        key = request.api.key
        if key is ApiKey.METADATA:
            _served_with(request, serve, lambda answer: _failed_metadata(answer, is_affected, self.code))
            return
        matched, rest = split(key, request.body, is_affected) if key in SHAPES else (request.body, None)
        failed = failed_answer(request, matched, self.code, self.message)
        if self.applied:
            _served_with(request, serve, lambda answer: _in_place(key, answer, failed))
        else:
            _answered_instead(request, serve, failed, rest)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers the affected parts with `make`, without serving them, and serves the others."""

    make: Callable[[Any], Message | None]

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        key = request.api.key
        # A Metadata response also lists the brokers, so its parts cannot be built separately.
        has_parts = key in SHAPES and key is not ApiKey.METADATA
        matched, rest = split(key, request.body, is_affected) if has_parts else (request.body, None)
        _answered_instead(request, serve, _tried(self.make, matched, "made"), rest)


def _answered_instead(request: Request, serve: Serve, answer: Message | None, rest: Message | None) -> None:
    """Sends `answer` in place of serving the request, except for `rest`, which is served."""
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
    """Serves the request and passes its response to `take`; None: there is no response."""

    def taken(answered: Request, answer: Message | None) -> bool:
        take(answered, answer)
        return True

    request.on_response = taken
    serve(request)


def _served_with(request: Request, serve: Serve, changed: Callable[[Any], Message | None]) -> None:
    """Serves the request and sends what `changed` makes of the response."""

    def deliver(answered: Request, answer: Message | None) -> None:
        new = None if answer is None else _tried(changed, answer, "changed")
        if new is None:
            answered.drop()
        else:
            answered.deliver(new)

    _served(request, serve, deliver)


def _tried(function: Callable[[Any], Message | None], body: Message, done: str) -> Message | None:
    """Returns what a test's own function makes of a message; None if it raises, which is logged."""
    try:
        return function(body)
    except Exception:
        # The request may be answered already, so nothing else would end it.
        logger.exception("A response could not be %s; closing its connection", done)
        return None


@dataclass(frozen=True, slots=True)
class Alter:
    change: Change

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        _served_with(request, serve, partial(self.change, request.body))


@dataclass(frozen=True, slots=True)
class Delay:
    """Answers later, by the timer. No thread waits, and the connection's next request is not read in the meantime.

    A broker that stops has no timer, so it drops the fetches that its stop completes.
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
    """Truncates the response. `keep`: bytes of the message after its size."""

    keep: int

    def __call__(self, request: Request, serve: Serve, is_affected: IsAffected) -> None:
        def deliver(answered: Request, answer: Message | None) -> None:
            if answer is None:
                answered.drop()
            else:
                answered.deliver_part(answer, self.keep)

        _served(request, serve, deliver)


def wrong_correlation_id(request: Request, serve: Serve, is_affected: IsAffected) -> None:
    # Negative where the request's id is not, so the client waits for no such id.
    wrong = -1 - request.header.correlation_id
    _served(request, serve, lambda answered, answer: answered.deliver(answer, correlation_id=wrong))


class Hold:
    """Keeps requests unserved until `release`; with `applied`, keeps their responses. No thread waits.

    The lock guards `_waiting`, which is None after the release. Each connection has one request here at a time.
    """

    def __init__(self, *, applied: bool = False, on_keep: Callable[[], object] = bool) -> None:
        """Creates an effect that holds. `on_keep` is called for each request or response that has to wait."""
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
        """Continues everything that waits, in order, in the calling thread."""
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
