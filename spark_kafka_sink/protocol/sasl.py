"""SASL: how a client logs in, and the SCRAM credentials that users log in with."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE, Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BYTES, INT8, INT16, INT32, INT64, STRING, ArrayOf

# SaslHandshake (17): the SASL mechanism that a client will use.


@message
class SaslHandshakeRequest(Message):
    """v0: bare SASL tokens follow on the connection; v1: SaslAuthenticate requests."""

    mechanism: str = wire(STRING)


@message
class SaslHandshakeResponse(Message):
    """`mechanisms` are those that the broker has."""

    error_code: int = wire(INT16, default=0)
    mechanisms: Sequence[str] = wire(ArrayOf(STRING), default=())


SASL_HANDSHAKE = Api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER_FLEXIBLE, SaslHandshakeRequest, SaslHandshakeResponse)


# SaslAuthenticate (36): one step of a SASL exchange, after SaslHandshake v1.


@message
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        # With PLAIN they are a password.
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


@message
class SaslAuthenticateResponse(Message):
    """`session_lifetime_ms`: when the client must authenticate again at the latest (KIP-368); 0: never."""

    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    auth_bytes: bytes = wire(BYTES, default=b"")
    session_lifetime_ms: int = wire(INT64, since=1, default=0, ignorable=True)


SASL_AUTHENTICATE = Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse)


# DescribeUserScramCredentials (50): which SCRAM mechanisms users can log in with (KIP-554).


@message
class UserName(Message):
    name: str = wire(STRING)


@message
class DescribeUserScramCredentialsRequest(Message):
    """`users` is None or empty for all."""

    users: Sequence[UserName] | None = wire(ArrayOf(UserName), nullable_since=0, default=())


@message
class CredentialInfo(Message):
    """`mechanism`: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@message
class DescribeUserScramCredentialsResult(Message):
    user: str = wire(STRING)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    credential_infos: Sequence[CredentialInfo] = wire(ArrayOf(CredentialInfo), default=())


@message
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    results: Sequence[DescribeUserScramCredentialsResult] = wire(ArrayOf(DescribeUserScramCredentialsResult), default=())


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    0,
    0,
    0,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


# AlterUserScramCredentials (51): sets and deletes what users log in with (KIP-554). The password itself is not sent.


@message
class ScramCredentialDeletion(Message):
    """`mechanism`: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@message
class ScramCredentialUpsertion(Message):
    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)

    def __repr__(self) -> str:
        # Who knows the salted password can log in.
        return f"ScramCredentialUpsertion({self.name!r}, {self.mechanism}, {self.iterations})"


@message
class AlterUserScramCredentialsRequest(Message):
    deletions: Sequence[ScramCredentialDeletion] = wire(ArrayOf(ScramCredentialDeletion), default=())
    upsertions: Sequence[ScramCredentialUpsertion] = wire(ArrayOf(ScramCredentialUpsertion), default=())


@message
class AlterUserScramCredentialsResult(Message):
    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)


@message
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AlterUserScramCredentialsResult] = wire(ArrayOf(AlterUserScramCredentialsResult), default=())


ALTER_USER_SCRAM_CREDENTIALS = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
)
