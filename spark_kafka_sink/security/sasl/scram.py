"""Logins with a user and a password: PLAIN, and SCRAM, which never sends the password and verifies the broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.peer_text import quoted

# PLAIN (RFC 4616): the user and the password in one message

PLAIN: Final = "PLAIN"

CredentialsSource: TypeAlias = Callable[[], tuple[str, Secret]]
"""Returns the current user and password: a file that holds the password may have changed."""


class PlainClient:
    """One login with PLAIN. The broker proves nothing: only TLS protects against an impostor."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password
        self._is_sent = False
        self._is_complete = False

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        if not self._is_sent:
            self._is_sent = True
            return self._message()
        if self._is_complete:
            raise AuthenticationError("the broker sent another message after the PLAIN login was complete")
        # RFC 4616 has no response. As in Java and librdkafka, its bytes are ignored.
        self._is_complete = True
        return None

    def is_complete(self) -> bool:
        return self._is_complete

    def principal(self) -> str:
        return self._user

    def _message(self) -> bytes:
        password = self._password.reveal()
        for what, text in (("user", self._user), ("password", password)):
            if "\0" in text:
                raise AuthenticationError(f"the {what} for the PLAIN login contains a NUL character, which PLAIN cannot send")
            if not text:
                raise AuthenticationError(f"the {what} for the PLAIN login is empty")
        # A lone surrogate, which UTF-8 cannot encode, gives a wrong password instead of a crash.
        return f"\0{self._user}\0{password}".encode(errors="surrogatepass")


class PlainMechanism:
    """Logs in with PLAIN. Resolves user and password for each connection."""

    name: Final = PLAIN

    def __init__(self, credentials: CredentialsSource) -> None:
        self._credentials = credentials

    def client(self, host: str) -> PlainClient:
        user, password = self._credentials()
        return PlainClient(user, password)

    def close(self) -> None:
        """Does nothing."""


# SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""

MIN_ITERATIONS: Final = 4096
"""Kafka's minimum (ScramMechanism)."""

# Grammar of the messages, as regular expressions.
VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
EXTENSIONS: Final = rf"(?:,[A-Za-z]+={VALUE})*"


def escaped(user: str) -> str:
    """Returns a user name with `=` and `,` escaped for a message."""
    return user.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """Returns the user name that was passed to `escaped`."""
    return name.replace("=2C", ",").replace("=3D", "=")


def client_key(salted_password: bytes, hash_name: str) -> bytes:
    return hmac.digest(salted_password, b"Client Key", hash_name)


def server_key(salted_password: bytes, hash_name: str) -> bytes:
    return hmac.digest(salted_password, b"Server Key", hash_name)


def stored_key(key_of_client: bytes, hash_name: str) -> bytes:
    return hashlib.new(hash_name, key_of_client).digest()


def xor(one: bytes, other: bytes) -> bytes:
    """Returns the exclusive or of two texts of equal length."""
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


MAX_ITERATIONS: Final = 1_000_000
"""Maximum number of iterations of a broker. The sender thread computes them: a million takes 0.23 s with SHA-256 and
0.53 s with SHA-512, so 10^9 would hang it for 4 to 9 minutes. Kafka itself allows at most 16,384 (ScramMechanism), and OWASP
advises 600,000 for stored passwords."""
MAX_MESSAGE_BYTES: Final = 16_384
"""Maximum size of a broker's message. Real ones have about 100 bytes; a frame may have 100 MB."""

_HEADER: Final = "n,,"  # no channel binding, no authorization id
_SERVER_FIRST: Final = re.compile(rf"r=(?P<nonce>{PRINTABLE}),s=(?P<salt>{BASE64}),i=(?P<iterations>[0-9]{{1,20}}){EXTENSIONS}")
_SERVER_FINAL: Final = re.compile(rf"v=(?P<signature>{BASE64}){EXTENSIONS}")
_ERROR: Final = re.compile(rf"e=(?P<error>{VALUE}){EXTENSIONS}")


class SaltedPasswords:
    """Caches salted passwords, so that only the first login computes the iterations.

    The brokers of a cluster share a user's salt. No password is kept: each is identified by an HMAC with a random key.
    """

    _KEPT: Final = 8  # a broker that sends a new salt each time must not fill memory

    def __init__(self, hash_name: str) -> None:
        self._hash = hash_name
        self._key = secrets.token_bytes(32)
        self._known: dict[tuple[bytes, bytes, int], bytes] = {}

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Returns Hi(password, salt, iterations) of RFC 5802, without SASLprep like Java, because brokers store the bytes."""
        secret = password.encode(errors="surrogatepass")
        asked = hmac.digest(self._key, secret, "sha256"), salt, iterations
        found = self._known.pop(asked, None) or hashlib.pbkdf2_hmac(self._hash, secret, salt, iterations)
        self._known[asked] = found
        if len(self._known) > self._KEPT:
            del self._known[next(iter(self._known))]
        return found


class _State(Enum):
    FIRST = auto()
    SERVER_FIRST = auto()
    SERVER_FINAL = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user and the password. is_token: whether they are the id and the HMAC of a delegation token."""

    name: str
    password: Secret = field(repr=False)
    is_token: bool = False


class ScramClient:
    """One login with SCRAM: Kafka's ScramSaslClient."""

    def __init__(self, mechanism: str, user: ScramUser, passwords: SaltedPasswords, nonce: str) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._user = user
        self._passwords = passwords
        self._nonce = nonce
        extension = ",tokenauth=true" if user.is_token else ""
        self._bare = f"n={escaped(user.name)},r={nonce}{extension}"
        self._server_signature = b""
        self._state = _State.FIRST

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        state, self._state = self._state, _State.FAILED
        if state is _State.FIRST:
            self._state = _State.SERVER_FIRST
            return f"{_HEADER}{self._bare}".encode(errors="surrogatepass")
        if state is _State.SERVER_FIRST:
            answer, self._state = self._final(self._text(challenge)), _State.SERVER_FINAL
            return answer
        if state is not _State.SERVER_FINAL:
            raise AuthenticationError(f"the broker sent another message after the {self._mechanism} login had ended")
        self._check_server(self._text(challenge))
        self._state = _State.COMPLETE
        return None

    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def principal(self) -> str:
        return self._user.name

    def _text(self, challenge: bytes | None) -> str:
        """Returns a message as text. Raises AuthenticationError if the broker rejected the login."""
        message = challenge or b""
        if len(message) > MAX_MESSAGE_BYTES:
            text = f"the broker sent a {self._mechanism} message of {counted(len(message), 'byte')}"
            raise AuthenticationError(f"{text}; at most {MAX_MESSAGE_BYTES:,} are allowed")
        text = message.decode(errors="replace")
        if (refusal := _ERROR.fullmatch(text)) is not None:
            raise AuthenticationError(
                f"the broker rejected the {self._mechanism} login of user {self._user.name!r}: {quoted(refusal['error'])}"
            )
        return text

    def _final(self, message: str) -> bytes:
        """Returns the client's proof of the password, and records the expected proof of the server."""
        nonce, salt, iterations = self._server_first(message)
        salted = self._passwords.salted(self._user.password.reveal(), salt, iterations)
        key = client_key(salted, self._hash)
        without_proof = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._bare},{message},{without_proof}".encode(errors="surrogatepass")
        self._server_signature = hmac.digest(server_key(salted, self._hash), signed, self._hash)
        proof = xor(key, hmac.digest(stored_key(key, self._hash), signed, self._hash))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _server_first(self, message: str) -> tuple[str, bytes, int]:
        """Returns nonce, salt and iterations."""
        match = _SERVER_FIRST.fullmatch(message)
        if match is None:
            raise self._invalid("first message has an invalid format")
        nonce, iterations = match["nonce"], int(match["iterations"])
        # Without its own characters the broker could replay a recorded exchange.
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._invalid("nonce does not continue the client's nonce")
        if not match["salt"]:
            raise self._invalid("salt is empty")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            text = (
                f"the broker requests {iterations:,} {self._mechanism} iterations; {MIN_ITERATIONS:,} to {MAX_ITERATIONS:,} are"
            )
            raise AuthenticationError(
                f"{text} allowed: recreate the credentials of user {self._user.name!r} with a number in this range"
            )
        return nonce, base64.b64decode(match["salt"], validate=True), iterations

    def _check_server(self, message: str) -> None:
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise self._invalid("final message has an invalid format")
        if not hmac.compare_digest(base64.b64decode(match["signature"], validate=True), self._server_signature):
            raise AuthenticationError(
                f"the broker's {self._mechanism} signature is wrong: it does not know the credentials of user "
                f"{self._user.name!r}, so it is not the broker that it claims to be"
            )

    def _invalid(self, what: str) -> AuthenticationError:
        # The message is not quoted, because a broken exchange may contain any bytes.
        return AuthenticationError(f"the broker's {self._mechanism} {what}")


class ScramMechanism:
    """Logs in with SCRAM. Resolves user and password for each connection, and caches salted passwords."""

    def __init__(
        self,
        name: str,
        credentials: CredentialsSource,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """is_token: whether the credentials are a delegation token's id and HMAC."""
        self.name: Final = name
        self._credentials = credentials
        self._is_token = is_token
        self._nonce = nonce
        self._passwords = SaltedPasswords(SCRAM_HASHES[name])

    def client(self, host: str) -> ScramClient:
        user, password = self._credentials()
        return ScramClient(self.name, ScramUser(user, password, self._is_token), self._passwords, self._nonce())

    def close(self) -> None:
        """Does nothing."""
