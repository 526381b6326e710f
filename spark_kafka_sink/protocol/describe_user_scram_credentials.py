"""DescribeUserScramCredentials (50): which SCRAM mechanisms users can log in with (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT8, INT16, INT32, STRING, ArrayOf


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
