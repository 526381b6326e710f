"""SASL: login of clients, and administration of SCRAM credentials."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.counts import counted
from spark_kafka_sink.protocol.api import MEGABYTE, NEVER_FLEXIBLE, Api, ApiKey
from spark_kafka_sink.protocol.fields import BYTES, INT8, INT16, INT32, INT64, STRING, ArrayOf, Message, message, wire

# SaslHandshake (17): selects the client's SASL mechanism.


@message
class SaslHandshakeRequest(Message):
    """A handshake. v0: bare SASL tokens follow on the connection; v1: SaslAuthenticate requests."""

    mechanism: str = wire(STRING)


@message
class SaslHandshakeResponse(Message):
    """The response. `mechanisms` are those that the broker has enabled."""

    error_code: int = wire(INT16, default=0)
    mechanisms: Sequence[str] = wire(ArrayOf(STRING), default=())


SASL_HANDSHAKE = Api(
    ApiKey.SASL_HANDSHAKE, 0, 1, NEVER_FLEXIBLE, SaslHandshakeRequest, SaslHandshakeResponse, max_response_bytes=MEGABYTE // 2
)
"""Until a login is complete, brokers have the same limit of 512 KB for clients."""


# SaslAuthenticate (36): one step of a SASL exchange, after SaslHandshake v1.


@message
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        # PLAIN sends a password in them.
        return f"SaslAuthenticateRequest({counted(len(self.auth_bytes), 'byte')})"


@message
class SaslAuthenticateResponse(Message):
    """The response. `session_lifetime_ms`: the time within which the client must authenticate again (KIP-368); 0: no limit."""

    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    auth_bytes: bytes = wire(BYTES, default=b"")
    session_lifetime_ms: int = wire(INT64, since=1, default=0, ignorable=True)


SASL_AUTHENTICATE = Api(
    ApiKey.SASL_AUTHENTICATE, 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse, max_response_bytes=MEGABYTE // 2
)


# DescribeUserScramCredentials (50): the SCRAM mechanisms of users (KIP-554).


@message
class UserName(Message):
    name: str = wire(STRING)


@message
class DescribeUserScramCredentialsRequest(Message):
    """A request for credentials. `users` is None or empty for all."""

    users: Sequence[UserName] | None = wire(ArrayOf(UserName), nullable_since=0, default=())


@message
class CredentialInfo(Message):
    """A credential. `mechanism`: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

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
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
)


# AlterUserScramCredentials (51): sets and deletes SCRAM credentials (KIP-554). The password itself is not sent.


@message
class ScramCredentialDeletion(Message):
    """A deletion. `mechanism`: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

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
        # The salted password is enough to log in.
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
