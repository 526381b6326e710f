"""A request in the broker: read from a frame, answered once, from any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from spark_kafka_sink.broker.error_responses import error_response
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.errors import KafkaSinkError, UnsupportedVersionError
from spark_kafka_sink.network.channel import Buffer
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsRequest
from spark_kafka_sink.protocol.apis.sasl import SASL_AUTHENTICATE, SaslAuthenticateRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import RequestHeader, decode_request, encode_response

logger = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True)
class Session:
    """The state of one connection. It needs no lock: a connection has one request at a time, so its handlers run in turn.

    client_software_name, client_software_version: from its ApiVersions (KIP-511). is_authenticated: set with `principal` by the
    last step of a login; used on listeners with SASL only. sasl_state: the state between the steps of a login.
    has_bare_sasl_tokens: after a SaslHandshake v0 the frames are tokens without Kafka's headers, until the login is complete.
    """

    client_host: str
    client_port: int
    principal: str = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    is_authenticated: bool = False
    sasl_state: Any = None
    has_bare_sasl_tokens: bool = False


class ResponseAction(Enum):
    """The action for a response. NO_OP: nothing is sent (acks=0), and the connection's next request may follow."""

    SEND = auto()
    NO_OP = auto()
    CLOSE_CONNECTION = auto()


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `throttle_ms`: the time for which the connection's next request is not read.

    `announced`: the frame's announced size if only a part is sent, after which the connection is closed.
    """

    request: Request
    action: ResponseAction
    buffers: Sequence[Buffer] = ()
    throttle_ms: int = 0
    announced: int | None = None


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """A decoded request. `version`: the version of the response."""

    header: RequestHeader
    body: Message
    api: AnyApi
    version: int


def bare_sasl_token(frame: memoryview) -> DecodedRequest:
    """Decodes a frame after a SaslHandshake v0, which has no header; it is served as a SaslAuthenticate."""
    return DecodedRequest(
        RequestHeader(SASL_AUTHENTICATE.key, 0, 0, None), SaslAuthenticateRequest(bytes(frame)), SASL_AUTHENTICATE, 0
    )


def decode(frame: memoryview, served: Mapping[int, AnyApi]) -> DecodedRequest:
    """Decodes a frame. Raises PeerError for invalid bytes and for an API or version that is not `served`.

    ApiVersions is served in any version. An unknown one is treated as v0 and not read further, because a client uses its newest
    version before it can know the broker's (KIP-511).
    """
    try:
        header, body = decode_request(frame, served)
    except UnsupportedVersionError as error:
        if error.facts["api_key"] != ApiKey.API_VERSIONS:
            raise
        header = RequestHeader(error.facts["api_key"], error.facts["version"], error.facts["correlation_id"], None)
        return DecodedRequest(header, ApiVersionsRequest(), API_VERSIONS, 0)
    return DecodedRequest(header, body, served[header.api_key], header.api_version)


OnAnswer = Callable[["Request", Message | None], bool]
"""Called with a response (None: there is none) on the thread that answers. Returns True if it has handled it."""


class Request:
    """One request. A handler returns its response, or answers later, once and from any thread.

    It answers with `answer`, `answer_nothing` or `close_connection`. The first call counts; later ones are logged and do nothing.
    version: the version of the response. It equals `header.api_version`, except that an unknown version of ApiVersions is
    answered in v0. body: its records are views of the received bytes. connection_id: unique in its Processor.
    """

    __slots__ = (
        "_answered", "_respond", "_throttle_ms", "api", "body", "connection_id", "header", "listener", "on_response", "session",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        decoded: DecodedRequest,
        session: Session,
        listener: Listener,
        respond: Callable[[Response], None],
        connection_id: int = 0,
    ) -> None:
        """Creates a request. `respond` passes the response to the connection's Processor, from any thread."""
        self.header = decoded.header
        self.body: Any = decoded.body  # a handler knows the class by its API
        self.api = decoded.api
        self.version = decoded.version
        self.session = session
        self.listener = listener
        self.connection_id = connection_id
        self.on_response: OnAnswer | None = None
        self._respond = respond
        self._throttle_ms = 0
        # Acquired by the first answer and never released: the cheapest test-and-set between threads.
        self._answered = threading.Lock()

    def __str__(self) -> str:
        header, session = self.header, self.session
        who = f"{header.client_id!r} at {session.client_host}:{session.client_port}"
        return f"{self.api.name} v{header.api_version} request {header.correlation_id} of {who}"

    @property
    def is_answered(self) -> bool:
        return self._answered.locked()

    def answer(self, body: Message) -> None:
        """Sends the response. A body that cannot be encoded is answered as UNKNOWN_SERVER_ERROR."""
        if self._is_first("answer") and not self._is_intercepted(body):
            self.deliver(body)

    def answer_bare(self, token: bytes) -> None:
        """Answers without Kafka's header, for a client that sent none (`Session.has_bare_sasl_tokens`)."""
        if self._is_first("answer_bare"):
            self._respond(Response(self, ResponseAction.SEND, [token]))

    def answer_last(self, body: Message) -> None:
        """Answers, then closes the connection."""
        if self._is_first("answer_last") and not self._is_intercepted(body):
            self.deliver_part(body, None)

    def answer_error(self, code: ErrorCode, message: str | None = None) -> None:
        """Answers with this API's response in which everything has `code`. Closes the connection if there is none.

        If the handler failed after it had answered, the first response is kept.
        """
        if self.is_answered:
            return
        body = error_response(self.api, self.version, self.body, code, message)
        if body is None:
            self.close_connection()
        else:
            self.answer(body)

    def answer_nothing(self) -> None:
        """Sends no response: for Produce with acks=0, the next request may come."""
        if self._is_first("answer_nothing") and not self._is_intercepted(None):
            self.deliver(None)

    def close_connection(self) -> None:
        if self._is_first("close_connection"):
            self.drop()

    # The final steps. For code that took over a response (`on_response`); everything else uses the methods above.

    def deliver(self, body: Message | None, *, correlation_id: int | None = None) -> None:
        """Sends a response, or nothing if it is None. `correlation_id` replaces the request's."""
        if body is None:
            self._respond(Response(self, ResponseAction.NO_OP))
            return
        buffers = self._encoded(body, correlation_id)
        if buffers is None:
            self.drop()
            return
        self._respond(Response(self, ResponseAction.SEND, buffers, self._throttle_ms))

    def deliver_part(self, body: Message, size: int | None) -> None:
        """Sends the first `size` bytes of the frame's message, or all of them, and closes the connection."""
        buffers = self._encoded(body, None)
        if buffers is None:
            self.drop()
            return
        whole = b"".join(buffers)
        self._respond(Response(self, ResponseAction.SEND, [whole[:size]], announced=len(whole)))

    def drop(self) -> None:
        """Closes the connection."""
        self._respond(Response(self, ResponseAction.CLOSE_CONNECTION))

    def _is_first(self, what: str) -> bool:
        if self._answered.acquire(blocking=False):
            return True
        logger.error("%s was already answered: %s has no effect", self, what, stack_info=True)
        return False

    def _is_intercepted(self, body: Message | None) -> bool:
        return self.on_response is not None and self.on_response(self, body)

    def _encoded(self, body: Message, correlation_id: int | None) -> list[Buffer] | None:
        """Encodes a response. Not in the Processor, because a response that cannot be encoded concerns only its own request."""
        identity = self.header.correlation_id if correlation_id is None else correlation_id
        try:
            return self._written(body, identity)
        except Exception as error:
            # This package's errors name the field. Any other is a value of a wrong type, which the traceback locates.
            logger.error("The response to %s cannot be encoded: %s", self, error, exc_info=not isinstance(error, KafkaSinkError))
        fallback = error_response(self.api, self.version, self.body, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        return None if fallback is None else self._written(fallback, identity)

    def _written(self, body: Message, correlation_id: int) -> list[Buffer]:
        buffers = encode_response(self.api, self.version, correlation_id, body)
        self._throttle_ms = getattr(body, "throttle_time_ms", 0)
        return buffers
