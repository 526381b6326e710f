"""AWS_MSK_IAM: a login at Amazon MSK with a signed request, as Amazon's aws-msk-iam-auth for Java sends it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl.aws_credentials import (
    AwsCredentials,
    aws_options,
    credentials_in,
    shared_credentials,
    signed_query,
)

VERSION: Final = "2020_10_22"
USER_AGENT: Final = "spark-kafka-sink"
MAX_RESPONSE_BYTES: Final = 65_536


def first_message(credentials: AwsCredentials, host: str, region: str, now_s: float) -> bytes:
    """Returns the signed payload: IAMSaslClient's first message, as JSON."""
    query = signed_query(credentials, host, region, now_s)
    payload = {"version": VERSION, "host": host, "user-agent": USER_AGENT} | {name.lower(): query[name] for name in query}
    return json.dumps(payload, separators=(",", ":")).encode()


class _State(Enum):
    FIRST = auto()
    ANSWER = auto()
    COMPLETE = auto()
    FAILED = auto()


class AwsMskIamClient:
    """One login. The signature is made when the message is sent, because it is good for 15 minutes only."""

    def __init__(self, credentials: AwsCredentials, host: str, region: str, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since the epoch."""
        self._credentials = credentials
        self._host = host
        self._region = region
        self._clock = clock
        self._state = _State.FIRST

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        state, self._state = self._state, _State.FAILED
        if state is _State.FIRST and not challenge:
            message = first_message(self._credentials, self._host, self._region, self._clock())
            self._state = _State.ANSWER
            return message
        if state is _State.ANSWER:
            self._check(challenge or b"")
            self._state = _State.COMPLETE
            return None
        raise AuthenticationError("the broker sent a message that AWS_MSK_IAM does not allow")

    def _check(self, answer: bytes) -> None:
        """Raises AuthenticationError unless the response shows that the broker accepted the signature."""
        if not answer:
            raise AuthenticationError("the broker sent an empty response to the signature")
        try:
            said: Any = json.loads(answer[:MAX_RESPONSE_BYTES])
        except (ValueError, RecursionError):
            raise AuthenticationError("the broker's response is not JSON") from None
        version = said.get("version") if isinstance(said, dict) else None
        if version != VERSION:
            raise AuthenticationError(f"the broker's response has another version than {VERSION}, which is not supported")
        if not isinstance(said.get("request-id"), str):
            raise AuthenticationError("the broker's response has no request-id")

    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def principal(self) -> str:
        return self._credentials.key_id


class AwsMskIamMechanism:
    """Signs each login with the credentials of the process, which are looked up and refreshed in the background.

    Threads: the client's.
    """

    name: Final = "AWS_MSK_IAM"

    def __init__(self, config: SecurityConfig, wakeup: Callable[[], None]) -> None:
        """Raises OptionError for a wrong option, or if botocore is not installed."""
        self._tokens = shared_credentials(aws_options(config))
        self._wakeup = wakeup

    def client(self, host: str) -> AwsMskIamClient | None:
        token = self._tokens().get(host, self, self._wakeup)
        return None if token is None else AwsMskIamClient(credentials_in(token)[0], host, credentials_in(token)[1])

    def close(self) -> None:
        """Stops refreshing the credentials, unless another producer uses them."""
        self._tokens().leave(self)
