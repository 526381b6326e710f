"""The file system's errors as what a client is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.protocol.error_codes import ErrorCode


@contextmanager
def storage_errors(name: str) -> Iterator[None]:
    """OSError, of a full disk say, is KAFKA_STORAGE_ERROR: the client tries again."""
    try:
        yield
    except OSError as error:
        raise ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {name}: {error}") from error
