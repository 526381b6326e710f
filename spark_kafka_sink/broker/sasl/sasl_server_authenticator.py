"""The login of a connection: its state and the requests allowed in it (Kafka's SaslServerAuthenticator)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.error_responses import error_response
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl.sasl_server import PLAIN, PlainSaslServer, SaslAuthenticationError, SaslError, ScramSaslServer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)

MIN_REAUTH_INTERVAL_MS: Final = 1000
"""Kafka's `KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`."""


SaslServer: TypeAlias = PlainSaslServer | ScramSaslServer
SaslServers: TypeAlias = Mapping[str, Callable[[], SaslServer]]
"""Factories of exchanges by mechanism, in the order in which clients see them."""


class SaslState(Enum):
    """States of a login. BAD_MECHANISM: a re-authentication by another mechanism, which fails at the next request."""

    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    BAD_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


class Admission(Enum):
    """The decision about a request before it is served."""

    SERVE = auto()
    CLOSE = auto()
    ILLEGAL_STATE = auto()
    """Answers with ILLEGAL_SASL_STATE and closes the connection."""


_ADMITTED: Final[Mapping[SaslState, frozenset[ApiKey]]] = {
    SaslState.HANDSHAKE: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    SaslState.AUTHENTICATE: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SaslState.BAD_MECHANISM: frozenset(),
    SaslState.FAILED: frozenset(),
}
"""The APIs that are served before the login is complete."""


class SaslServerAuthenticator:
    """The login of one connection, used by one thread at a time. Times are monotonic, in ms.

    A method that raises ApiException has ended the login. The error is the last response on the connection.
    """

    def __init__(self, servers: SaslServers, max_reauth_ms: int = 0) -> None:
        """Creates a login that has not started.

        Args:
            servers: factories of exchanges by mechanism.
            max_reauth_ms: the time that a login is valid (KIP-368); 0: as long as the connection.
        """
        self._servers = servers
        self.mechanisms = tuple(servers)
        self._max_reauth_ms = max_reauth_ms
        self.state = SaslState.HANDSHAKE
        self.user: str | None = None
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._expires_ms: float | None = None
        self._reauthentication_began_ms: float | None = None

    def is_complete(self) -> bool:
        """Returns whether the client is logged in. It is not while it logs in again."""
        return self.state is SaslState.COMPLETE

    def admission(self, key: ApiKey, now_ms: float) -> Admission:
        if self.state is SaslState.COMPLETE:
            expired = self._expires_ms is not None and now_ms > self._expires_ms
            return Admission.CLOSE if expired and key is not ApiKey.SASL_HANDSHAKE else Admission.SERVE
        if key in _ADMITTED[self.state]:
            return Admission.SERVE
        # Kafka has a response only for this state; before the handshake the client may not even speak its protocol.
        return Admission.ILLEGAL_STATE if self.state is SaslState.AUTHENTICATE else Admission.CLOSE

    def may_reauthenticate(self, now_ms: float) -> bool:
        """Returns whether a handshake may start another login (`KafkaChannel.maybeBeginServerReauthentication`)."""
        if self._expires_ms is None:
            return False
        began = self._reauthentication_began_ms
        return began is None or now_ms - began >= MIN_REAUTH_INTERVAL_MS

    def handshake(self, mechanism: str, now_ms: float) -> None:
        """Starts a login by a mechanism. Raises UNSUPPORTED_SASL_MECHANISM."""
        if self.state is SaslState.COMPLETE:
            self._reauthentication_began_ms = now_ms
        if mechanism not in self.mechanisms:
            self.state = SaslState.FAILED
            raise ApiException(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unsupported SASL mechanism {mechanism}")
        if self.user is not None and mechanism != self._mechanism:
            self.state = SaslState.BAD_MECHANISM
            return
        self._mechanism = mechanism
        self._server = self._servers[mechanism]()
        self.state = SaslState.AUTHENTICATE

    def authenticate(self, response: bytes, now_ms: float) -> bytes:
        """Performs one step. Raises SASL_AUTHENTICATION_FAILED with the same text for a wrong user and a wrong password."""
        server = self._server
        assert server is not None
        try:
            answer = server.evaluate_response(response)
            self._check_user(server.authorization_id)
        except SaslError as error:
            self.state = SaslState.FAILED
            logger.info("Failed %s by %s: %s", self._what(), self._mechanism, error)
            raise ApiException(ErrorCode.SASL_AUTHENTICATION_FAILED, self._told(error)) from None
        if server.authorization_id is not None:
            self.user = server.authorization_id
            self._server = None
            self._expires_ms = now_ms + self._max_reauth_ms if self._max_reauth_ms else None
            self.state = SaslState.COMPLETE
        return answer

    def session_lifetime_ms(self) -> int:
        """Returns the remaining validity of the login for the response to the last step; 0: no limit."""
        return self._max_reauth_ms if self.state is SaslState.COMPLETE else 0

    def _check_user(self, user: str | None) -> None:
        if None not in (user, self.user) and user != self.user:
            raise SaslAuthenticationError(f"Cannot change principals during re-authentication from User.{self.user}: User.{user}")

    def _told(self, error: SaslError) -> str:
        if isinstance(error, SaslAuthenticationError):
            return str(error)
        return f"Authentication failed during {self._what()} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _what(self) -> str:
        return "authentication" if self.user is None else "re-authentication"


def sasl_servers(mechanisms: Sequence[str], credentials: Credentials) -> SaslServers:
    """Returns factories of exchanges for the mechanisms."""

    def begin(mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainSaslServer(credentials)
        return ScramSaslServer(mechanism, credentials)

    return {mechanism: partial(begin, mechanism) for mechanism in mechanisms}


def authenticator_of(services: BrokerServices, request: Request) -> SaslServerAuthenticator:
    """Returns the connection's authenticator, which its first request creates."""
    session, config = request.session, services.config
    if session.sasl_state is None:
        servers = sasl_servers(config.sasl_mechanisms, services.credentials)
        session.sasl_state = SaslServerAuthenticator(servers, config.connections_max_reauth_ms)
    authenticator: SaslServerAuthenticator = session.sasl_state
    return authenticator


def is_admitted(services: BrokerServices, request: Request) -> bool:
    """Returns whether to serve the request. Otherwise it answers or closes the connection."""
    if not request.listener.is_sasl:
        return True
    admission = authenticator_of(services, request).admission(request.api.key, services.timer.now_ms())
    if admission is Admission.SERVE:
        return True
    logger.warning("%s is not allowed in this state of its connection's authentication", request)
    if admission is Admission.CLOSE:
        request.close_connection()
    else:
        text = f"Unexpected Kafka request of type {request.api.name} during SASL authentication."
        refuse(services, request, error_response(request.api, request.version, request.body, ErrorCode.ILLEGAL_SASL_STATE, text))
    return False


def refuse(services: BrokerServices, request: Request, body: Message | None) -> None:
    """Sends a last response after a delay, which slows down guessing of passwords. None: only closes the connection."""
    end = request.close_connection if body is None else partial(request.answer_last, body)
    services.timer.after(services.config.connection_failed_authentication_delay_ms, end)
