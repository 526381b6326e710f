"""Finds out which protocol a port speaks after it has closed a connection without a response.

Kafka silently closes a connection whose protocol differs from the listener's. One more connection sends a request of the other
protocol. Only a response in that protocol is a proof; otherwise the first failure stays as it was.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE
from typing import Final

from spark_kafka_sink.client.connection_states import ConnectionState
from spark_kafka_sink.client.sasl_login import BrokerAddress, offered
from spark_kafka_sink.errors import AuthenticationError, ProtocolError, UsageError
from spark_kafka_sink.network.channel import Buffer, Channel
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.protocol.api import Api, RequestT, ResponseT
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsRequest
from spark_kafka_sink.protocol.apis.sasl import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.messages import decode_response, encode_request

PROBE_MS: Final = 3_000
"""Time limit of a probe. A port that speaks the protocol responds within a round trip; otherwise this delays the error."""

_MOST: Final = 64 * 1024
"""Number of bytes of a response that are examined."""

_NO_PROOF: Final = "the other end speaks an unknown protocol"

_CORRELATION_ID: Final = 0x50726F62
_SIZE_AND_ID: Final = struct.Struct(">ii")
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of an alert, and of a handshake's record."""


@dataclass(frozen=True, slots=True)
class Question:
    """The bytes to send, and `judge`, which returns the error that the response proves, or None while it is too short.

    `judge` raises OSError once the response proves nothing.
    """

    sent: bytes
    judge: Callable[[bytes], AuthenticationError | None]


class ProbeChannel:
    """A channel whose handshake is the question. It always ends with the proven AuthenticationError or with an OSError.

    Owned by the thread that polls its selector.
    """

    read_needs: int = EVENT_READ
    write_needs: int = EVENT_WRITE

    def __init__(self, channel: Channel, question: Question) -> None:
        """channel: a new channel, which this object then owns."""
        self._channel = channel
        self._question = question
        self._unsent = memoryview(question.sent)
        self._came = bytearray()
        self._is_open = False

    @property
    def peer(self) -> str:
        return self._channel.peer

    @property
    def interest(self) -> int:
        if not self._is_open:
            return self._channel.interest
        return EVENT_WRITE if self._unsent else EVENT_READ

    def fileno(self) -> int:
        return self._channel.fileno()

    def finish_connect(self) -> bool:
        return self._channel.finish_connect()

    def handshake(self) -> bool:
        """Continues with the question. Raises AuthenticationError for a proof, OSError if there is none."""
        if not self._is_open:
            self._is_open = self._channel.handshake()
            if not self._is_open:
                return False
        while self._unsent:
            taken = self._channel.send([self._unsent])
            if not taken:
                return False
            self._unsent = self._unsent[taken:]
        return self._read()

    def _read(self) -> bool:
        buffer = memoryview(bytearray(4096))
        while len(self._came) < _MOST:
            count = self._channel.recv_into(buffer)
            if count is None:
                return False
            self._came += buffer[:count]
            proof = self._question.judge(bytes(self._came))
            if proof is not None:
                raise proof
            if not count:
                break
        raise OSError(_NO_PROOF)

    def recv_into(self, buffer: memoryview) -> int | None:
        return self._channel.recv_into(buffer)

    def send(self, buffers: Sequence[Buffer]) -> int:
        return self._channel.send(buffers)

    def has_buffered_bytes(self) -> bool:
        return False

    def detach(self) -> socket.socket:
        raise UsageError("a probe carries no requests")

    def close(self) -> None:
        self._channel.close()


def question_after(state: ConnectionState | None, broker: BrokerAddress, config: SecurityConfig) -> Question | None:
    """Returns the question after the other end closed a connection in this state; None if no other protocol explains it."""
    match state:
        case ConnectionState.READY if not config.uses_sasl:
            return expects_login(broker, config)
        case ConnectionState.CHECKING_API_VERSIONS if not config.uses_tls:
            return speaks_tls(broker, config)
        case ConnectionState.CONNECTING if config.uses_tls:
            return speaks_plain_text(broker, config)
        case _:
            return None


def speaks_tls(broker: BrokerAddress, config: SecurityConfig) -> Question:
    """Asks with TLS's first message, for a client without TLS."""

    def judge(came: bytes) -> AuthenticationError | None:
        if len(came) < len(_TLS_RECORDS[0]):
            return None
        if not came.startswith(_TLS_RECORDS):
            raise OSError(_NO_PROOF)
        protocol = "SASL_SSL" if config.uses_sasl else "SSL"
        return AuthenticationError(
            f"{broker.label} expects TLS, but this client does not use it (security.protocol={config.security_protocol}). Set"
            f" security.protocol={protocol}, or use the port of a listener without TLS.",
            broker=str(broker),
        )

    return Question(_client_hello(broker.host), judge)


def speaks_plain_text(broker: BrokerAddress, config: SecurityConfig) -> Question:
    """Asks for API versions without TLS, for a client with TLS."""

    def judge(came: bytes) -> AuthenticationError | None:
        if not _is_answer(came):
            return None
        protocol = "SASL_PLAINTEXT" if config.uses_sasl else "PLAINTEXT"
        return AuthenticationError(
            f"{broker.label} speaks plain text, but this client uses TLS (security.protocol={config.security_protocol})."
            f" Use the port of a listener with TLS. Set security.protocol={protocol} only if the network is trusted: everything,"
            " including passwords, is then sent unencrypted.",
            broker=str(broker),
        )

    return Question(_frame(API_VERSIONS, 0, ApiVersionsRequest()), judge)


def expects_login(broker: BrokerAddress, config: SecurityConfig) -> Question:
    """Asks for a login, for a client without SASL. A listener without SASL answers ILLEGAL_SASL_STATE."""

    def judge(came: bytes) -> AuthenticationError | None:
        if not _is_answer(came):
            return None
        try:
            body = decode_response(SASL_HANDSHAKE, 1, came[4:])[1]
        except ProtocolError:  # it is incomplete
            return None
        assert isinstance(body, SaslHandshakeResponse)
        if body.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
            raise OSError(_NO_PROOF)
        protocol = "SASL_SSL" if config.uses_tls else "SASL_PLAINTEXT"
        return AuthenticationError(
            f"{broker.label} expects a SASL login, but this client does not log in"
            f" (security.protocol={config.security_protocol}). Set security.protocol={protocol} and sasl.mechanism to one that"
            f" the broker offers: {offered(body.mechanisms) or 'none'}.",
            broker=str(broker),
        )

    return Question(_frame(SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN")), judge)


def _is_answer(came: bytes) -> bool:
    """Returns whether these are the first bytes of a Kafka response to the question; False while they are too few."""
    if len(came) < _SIZE_AND_ID.size:
        return False
    size, correlation_id = _SIZE_AND_ID.unpack_from(came)
    if not 4 < size <= _MOST or correlation_id != _CORRELATION_ID:
        raise OSError(_NO_PROOF)
    return True


def _frame(api: Api[RequestT, ResponseT], version: int, body: RequestT) -> bytes:
    message = b"".join(encode_request(api, version, _CORRELATION_ID, None, body))
    return struct.pack(">i", len(message)) + message


def _client_hello(host: str) -> bytes:
    """Returns TLS's first message. Nothing is verified, because the response is only recognized."""
    import ssl  # imported here, because most clients never need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass  # it waits for the response
    return outgoing.read()
