"""AlterUserScramCredentials (51): sets and deletes what users log in with (KIP-554). The password itself is not sent."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BYTES, INT8, INT16, INT32, STRING, ArrayOf


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
