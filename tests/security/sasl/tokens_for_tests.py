"""Token providers that tests name in options."""

from __future__ import annotations

from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.security.sasl.token_cache import Token

asked: list[str] = []
"""The hosts that `pair` was asked for."""

NOT_CALLABLE = 17


def pair(host: str) -> tuple[str, float]:
    asked.append(host)
    return f"token-for-{host}", 4_000_000_000


def whole(host: str) -> Token:
    return Token(Secret("whole-token"), 4_000_000_000, "alice", {"pool": host})
