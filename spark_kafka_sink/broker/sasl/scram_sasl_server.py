"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the client shows that it knows a password without saying it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from spark_kafka_sink.broker.sasl.credentials import SCRAM_HASHES, Credentials, ScramCredential
from spark_kafka_sink.broker.sasl.plain_sasl_server import check_authorization_id
from spark_kafka_sink.broker.sasl.sasl_server import SaslError
from spark_kafka_sink.broker.sasl.scram_messages import ClientFinal, ClientFirst, client_final, client_first


class ScramState(Enum):
    RECEIVE_CLIENT_FIRST_MESSAGE = auto()
    RECEIVE_CLIENT_FINAL_MESSAGE = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the first message and its answer have settled. `nonce`: the client's and ours."""

    first: ClientFirst
    credential: ScramCredential
    nonce: str
    server_first: str


def _random() -> str:
    return secrets.token_urlsafe(24)


class ScramSaslServer:
    """Kafka's ScramSaslServer. The exchange is over after one error."""

    def __init__(self, mechanism: str, credentials: Credentials, nonce: Callable[[], str] = _random) -> None:
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
        # The name of a delegation token is not that of a user; this broker has given out none.
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
        """The proof is the client's key, hidden under a signature that only who knows the stored key can take off."""
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslError("Invalid client credentials")
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise SaslError("Invalid client credentials")
