"""Logins without sockets: exchanges of PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677), and each connection's login."""

from __future__ import annotations

import base64
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Final, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.credentials import Credentials, ScramCredential
from spark_kafka_sink.broker.error_responses import error_response
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.security.sasl import scram

logger = logging.getLogger(__name__)


class SaslError(Exception):
    """A failed login. The client does not get the reason, because it may reveal whether a user exists."""


class SaslAuthenticationError(SaslError):
    """A failed login whose message the client gets. It reveals nothing that only authenticated clients may know."""


PLAIN: Final = "PLAIN"


class PlainSaslServer:
    """One exchange with one client (Kafka's PlainSaslServer). It is not used after an error.

    authorization_id: the authenticated user; None until the exchange is complete.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.authorization_id: str | None = None

    def evaluate_response(self, response: bytes) -> bytes:
        """Returns the answer to the client's message. Raises SaslError."""
        tokens = response.decode(errors="replace").split("\0", 3)
        if len(tokens) != 3:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        requested, user, password = tokens
        for what, token in (("username", user), ("password", password)):
            if not token:
                raise SaslAuthenticationError(f"Authentication failed: {what} not specified")
        if not self._credentials.is_password(user, password):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        check_authorization_id(requested, user)
        self.authorization_id = user
        return b""


def check_authorization_id(requested: str, user: str) -> None:
    """Raises SaslAuthenticationError if a user wants to act for another."""
    if requested not in ("", user):
        text = "Authentication failed: Client requested an authorization id that is different from username"
        raise SaslAuthenticationError(text)


_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{scram.NAME}))?,(?P<bare>(?:m={scram.VALUE},)?n=(?P<name>{scram.NAME}),"
    rf"r=(?P<nonce>{scram.PRINTABLE})(?P<extensions>{scram.EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c={scram.BASE64},r=(?P<nonce>{scram.PRINTABLE}){scram.EXTENSIONS}),p=(?P<proof>{scram.BASE64})"
)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message. `bare`: the signed part, without the header. `extensions`: as received, each after a comma."""

    bare: str
    user: str
    nonce: str
    authorization_id: str
    extensions: str


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The last message. `without_proof`: the signed part."""

    without_proof: str
    nonce: str
    proof: bytes = field(repr=False)


def client_first(message: bytes) -> ClientFirst:
    """Parses a message. Raises SaslError without quoting it, because it may be a password in the wrong place."""
    match = _CLIENT_FIRST.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslError("Invalid SCRAM client first message format")
    authorization_id = scram.unescaped(match["authzid"] or "")
    return ClientFirst(match["bare"], scram.unescaped(match["name"]), match["nonce"], authorization_id, match["extensions"])


def client_final(message: bytes) -> ClientFinal:
    """Parses a message. Raises SaslError."""
    match = _CLIENT_FINAL.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslError("Invalid SCRAM client final message format")
    return ClientFinal(match["without_proof"], match["nonce"], base64.b64decode(match["proof"], validate=True))


class ScramState(Enum):
    RECEIVE_CLIENT_FIRST_MESSAGE = auto()
    RECEIVE_CLIENT_FINAL_MESSAGE = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class _Begun:
    """The result of the first message and its answer. `nonce`: the client's and the server's, concatenated."""

    first: ClientFirst
    credential: ScramCredential
    nonce: str
    server_first: str


class ScramSaslServer:
    """Kafka's ScramSaslServer, with the methods of PlainSaslServer."""

    def __init__(
        self, mechanism: str, credentials: Credentials, nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)
    ) -> None:
        self._mechanism = mechanism
        self._hash = scram.SCRAM_HASHES[mechanism]
        self._credentials = credentials
        self._nonce = nonce
        self._begun: _Begun | None = None
        self.state = ScramState.RECEIVE_CLIENT_FIRST_MESSAGE
        self.authorization_id: str | None = None

    def evaluate_response(self, response: bytes) -> bytes:
        state, self.state = self.state, ScramState.FAILED
        if state is ScramState.RECEIVE_CLIENT_FIRST_MESSAGE:
            answer, self.state = self._first(client_first(response)), ScramState.RECEIVE_CLIENT_FINAL_MESSAGE
            return answer
        begun, self._begun = self._begun, None
        if state is not ScramState.RECEIVE_CLIENT_FINAL_MESSAGE or begun is None:
            raise SaslError(f"Unexpected challenge in Sasl server state {state.name}")
        answer, self.state = self._final(begun, client_final(response)), ScramState.COMPLETE
        self.authorization_id = begun.first.user
        return answer

    def _first(self, first: ClientFirst) -> bytes:
        # The name of a delegation token is not a user's name; this broker issues no such tokens.
        credential = None if ",tokenauth=true" in first.extensions else self._credentials.scram(self._mechanism, first.user)
        if credential is None:
            raise SaslError("Authentication failed: Invalid user credentials")
        check_authorization_id(first.authorization_id, first.user)
        nonce = first.nonce + self._nonce()
        server_first = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._begun = _Begun(first, credential, nonce, server_first)
        return server_first.encode()

    def _final(self, begun: _Begun, final: ClientFinal) -> bytes:
        if final.nonce != begun.nonce:
            raise SaslError("Invalid client nonce in the final client message.")
        signed = f"{begun.first.bare},{begun.server_first},{final.without_proof}".encode()
        self._verify(begun.credential, final.proof, signed)
        signature = hmac.digest(begun.credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(signature)

    def _verify(self, credential: ScramCredential, proof: bytes, signed: bytes) -> None:
        """Checks the proof, which is the client's key XORed with a signature that needs the stored key."""
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslError("Invalid client credentials")
        if not hmac.compare_digest(scram.stored_key(scram.xor(signature, proof), self._hash), credential.stored_key):
            raise SaslError("Invalid client credentials")


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
            user = server.authorization_id
            if None not in (user, self.user) and user != self.user:
                text = f"Cannot change principals during re-authentication from User.{self.user}: User.{user}"
                raise SaslAuthenticationError(text)
        except SaslError as error:
            self.state = SaslState.FAILED
            logger.info("Failed %s by %s: %s", self._what(), self._mechanism, error)
            raise ApiException(ErrorCode.SASL_AUTHENTICATION_FAILED, self._told(error)) from None
        if user is not None:
            self.user = user
            self._server = None
            self._expires_ms = now_ms + self._max_reauth_ms if self._max_reauth_ms else None
            self.state = SaslState.COMPLETE
        return answer

    def session_lifetime_ms(self) -> int:
        """Returns the remaining validity of the login for the response to the last step; 0: no limit."""
        return self._max_reauth_ms if self.state is SaslState.COMPLETE else 0

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
