"""The exception that becomes an error code in a response."""

from __future__ import annotations

from functools import partial

from spark_kafka_sink.protocol.error_codes import ErrorCode


class ApiException(Exception):  # noqa: N818  Kafka's name
    """Kafka's ApiException: raised while a request is served and converted to the API's error response.

    Args:
        code: the error code that the client receives.
        message: the error message, sent if the response has a field for it.
        record_errors: for INVALID_RECORD, (index in the batch, message) of each invalid record (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str | None = None, *, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.record_errors = record_errors

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ApiException, record_errors=self.record_errors), (self.code, self.message)
