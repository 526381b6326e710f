"""What a topic may be called (Kafka's `Topic.validate`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.protocol.error_codes import ErrorCode

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION in Kafka's words."""
    wrong = _wrong(name)
    if wrong is not None:
        raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")


def check_topic_resource(name: str) -> None:
    """Of a topic whose configs are to be altered (`ControllerConfigurationValidator.validateTopicName`)."""
    if not name:
        raise ApiException(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)


def check_collision(name: str, others: Iterable[str]) -> None:
    """`a.b` and `a_b` have the same metric names. `others`: names that exist."""
    for other in others:
        if other != name and _metric_name(other) == _metric_name(name):
            text = f"Topic '{name}' collides with existing topic: {other}"
            raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


def _wrong(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
