"""The server's side of PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from spark_kafka_sink.broker.cluster.credentials import Credentials, ScramCredential
from spark_kafka_sink.security.sasl.scram import (
    BASE64,
    EXTENSIONS,
    NAME,
    PRINTABLE,
    SCRAM_HASHES,
    VALUE,
    stored_key,
    unescaped,
    xor,
)


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
    rf"n,(?:a=(?P<authzid>{NAME}))?,(?P<bare>(?:m={VALUE},)?n=(?P<name>{NAME}),r=(?P<nonce>{PRINTABLE})(?P<extensions>{EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(rf"(?P<without_proof>c={BASE64},r=(?P<nonce>{PRINTABLE}){EXTENSIONS}),p=(?P<proof>{BASE64})")


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
    authorization_id = unescaped(match["authzid"] or "")
    return ClientFirst(match["bare"], unescaped(match["name"]), match["nonce"], authorization_id, match["extensions"])


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
        self._hash = SCRAM_HASHES[mechanism]
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
        if not hmac.compare_digest(stored_key(xor(signature, proof), self._hash), credential.stored_key):
            raise SaslError("Invalid client credentials")
