"""One SASL login on one connection: the next message and the meaning of each response. Java's SaslClientAuthenticator. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.errors import (
    AuthenticationError,
    BrokerError,
    PeerError,
    ProtocolError,
    UnsupportedVersionError,
    UsageError,
)
from spark_kafka_sink.network.channel import address_text
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.security.sasl.mechanism import SaslClient, SaslMechanism, refusal

MAX_MESSAGES: Final = 20
"""Messages that one login may take. SCRAM takes 2; GSSAPI takes 4 or 5."""

MAX_WORDS: Final = 500
"""Maximum length of a broker's text in an error."""

_HANDSHAKE: Final = SASL_HANDSHAKE.limited_to(1, SASL_HANDSHAKE.max_version)
"""Not v0, after which bare tokens would follow (before Kafka 1.0)."""

_ADVICE: Final = "Check the user, the password or token, and that sasl.mechanism is the one that the user was created for."
_WITHOUT_SASL: Final = {"SASL_PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SSL"}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker's address in errors: `label` is readable; `host` and `port` are as configured or advertised."""

    label: str
    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """The next request to send."""

    api: AnyApi
    version: int
    body: Message


class LoginState(Enum):
    """The progress of a login."""

    NEW = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


S = LoginState

NEXT: Final[Mapping[LoginState, frozenset[LoginState]]] = {
    S.NEW: frozenset({S.HANDSHAKE, S.FAILED}),
    S.HANDSHAKE: frozenset({S.AUTHENTICATE, S.FAILED}),
    S.AUTHENTICATE: frozenset({S.AUTHENTICATE, S.COMPLETE, S.FAILED}),
    S.COMPLETE: frozenset(),
    S.FAILED: frozenset(),
}
"""Which state may follow which."""


class SaslLogin:
    """Sends SaslHandshake, then SaslAuthenticate until both sides are done. Not usable after an error.

    session_lifetime_ms: how long the broker keeps the session, in ms; 0 for the life of the connection (KIP-368).

    `begin` and `answered` raise AuthenticationError if the same settings would fail again, other PeerErrors if another attempt
    may succeed, and errors of the mechanism.
    """

    def __init__(self, mechanism: SaslMechanism, broker: BrokerAddress, versions: NodeApiVersions, protocol: str) -> None:
        """protocol: security.protocol, for error texts."""
        self._mechanism = mechanism
        self._broker = broker
        self._versions = versions
        self._protocol = protocol
        self._client: SaslClient | None = None
        self._state = S.NEW
        self._version = 0
        self._messages = 0
        self.session_lifetime_ms = 0

    @property
    def state(self) -> LoginState:
        return self._state

    @property
    def is_complete(self) -> bool:
        return self._state is S.COMPLETE

    def begin(self) -> LoginRequest | None:
        """Returns the first request, or None while the mechanism fetches a token. It wakes the poll when to ask again."""
        try:
            self._client = self._mechanism.client(self._broker.host)
        except AuthenticationError as error:
            raise self._failed(error.message, **error.facts) from error
        if self._client is None:
            return None
        try:
            self._version = self._versions.usable(SASL_AUTHENTICATE)
            version = self._versions.usable(_HANDSHAKE)
        except UnsupportedVersionError as error:
            raise self._failed(f"{error.message}, so it does not offer a SASL login. {self._without_sasl()}") from error
        self._move(S.HANDSHAKE)
        return LoginRequest(_HANDSHAKE, version, SaslHandshakeRequest(self._mechanism.name))

    def answered(self, body: Message) -> LoginRequest | None:
        """Takes the response to the last request. Returns the next request, or None when the login is complete."""
        if isinstance(body, SaslHandshakeResponse) and self._state is S.HANDSHAKE:
            self._check_handshake(body)
            self._move(S.AUTHENTICATE)
            # A mechanism without a first message begins with an empty one.
            return self._authenticate(self._evaluate(None) or b"")
        if isinstance(body, SaslAuthenticateResponse) and self._state is S.AUTHENTICATE:
            if body.error_code:
                raise self._refused("SaslAuthenticate", body.error_code, body.error_message)
            if body.session_lifetime_ms > 0:
                self.session_lifetime_ms = body.session_lifetime_ms
            return self._next(bytes(body.auth_bytes))
        raise UsageError(f"a login in state {self._state.name} does not accept {type(body).__name__}")

    # Steps

    def _next(self, challenge: bytes) -> LoginRequest | None:
        client = self._client
        assert client is not None
        if not client.is_complete():
            reply = self._evaluate(challenge)
            if reply is not None:
                return self._authenticate(reply)
            if not client.is_complete():
                raise self._failed("the broker ended the login before it proved that it knows the user")
        self._move(S.COMPLETE)
        return None

    def _evaluate(self, challenge: bytes | None) -> bytes | None:
        client = self._client
        assert client is not None
        try:
            return client.evaluate(challenge)
        except AuthenticationError as error:
            raise self._failed(error.message, **error.facts) from error

    def _authenticate(self, token: bytes) -> LoginRequest:
        if self._messages == MAX_MESSAGES:
            self._move(S.FAILED)
            raise ProtocolError(
                f"{self._broker.label} asked for more than {MAX_MESSAGES} SASL messages of {self._mechanism.name}",
                broker=str(self._broker),
            )
        self._messages += 1
        return LoginRequest(SASL_AUTHENTICATE, self._version, SaslAuthenticateRequest(token))

    def _move(self, state: LoginState) -> None:
        if state not in NEXT[self._state]:
            raise UsageError(f"a login that is {self._state.name} cannot become {state.name}")
        self._state = state

    # Answers

    def _check_handshake(self, body: SaslHandshakeResponse) -> None:
        match body.error_code:
            case ErrorCode.NONE:
                return
            case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offers = offered(body.mechanisms)
                advice = f"It offers {offers}. Set sasl.mechanism to one of them" if offers else "It offers none"
                text = f"the broker does not offer the SASL mechanism {self._mechanism.name}. {advice}."
                raise self._failed(text, error_code=body.error_code, error=ErrorCode(body.error_code).name)
            case ErrorCode.ILLEGAL_SASL_STATE:
                text = f"this listener does not expect a login (ILLEGAL_SASL_STATE). {self._without_sasl()}"
                raise self._failed(text, error_code=body.error_code, error=ErrorCode.ILLEGAL_SASL_STATE.name)
            case code:
                raise self._refused("SaslHandshake", code, None)

    def _refused(self, api: str, code: int, words: str | None) -> PeerError:
        facts = error_facts(code)
        # Other mechanisms send a password or a token, which a broker may repeat in any encoding.
        may_quote = self._mechanism.name.startswith(("SCRAM-", "GSSAPI"))
        said = (quoted(words, most=MAX_WORDS) if may_quote and words else "") or f"{api} failed with {facts.name}"
        if self._mechanism.name == "OAUTHBEARER" and (status := refusal(words or "")):
            said = f"the broker rejected the token: {status}"
        if facts.retriable:
            self._move(S.FAILED)
            return BrokerError(f"{self._broker.label} rejected {api}: {facts.name}: {said}", error_code=code, error=facts.name)
        return self._failed(f"{said}{'' if said.endswith('.') else '.'} {_ADVICE}", error_code=code, error=facts.name)

    # Texts

    def _failed(self, text: str, **facts: object) -> AuthenticationError:
        self._move(S.FAILED)
        user = "" if self._client is None else self._client.principal()
        who = f" as user {user!r}" if user else ""
        return AuthenticationError(
            f"{self._broker.label}: the SASL login with {self._mechanism.name}{who} failed: {text}",
            **{"broker": str(self._broker), "mechanism": self._mechanism.name, "user": user} | facts,
        )

    def _without_sasl(self) -> str:
        return f"Set security.protocol={_WITHOUT_SASL[self._protocol]}, or use the port of a listener with SASL."


def offered(mechanisms: Sequence[str]) -> str:
    """Returns the mechanisms that a broker offers, for an error text."""
    named = [quoted(mechanism, most=40) for mechanism in mechanisms[:20]]
    return ", ".join(filter(None, named)) + (", ..." if len(mechanisms) > len(named) else "")
