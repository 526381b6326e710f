"""What a client is told by an error code."""

from __future__ import annotations

from spark_kafka_sink.protocol.error_codes import ErrorCode


class ApiException(Exception):  # noqa: N818  Kafka's name
    """Kafka's ApiException: raised wherever a request is served, and put into that API's response.

    code: what the client gets. message: goes along where the response has a field for it. record_errors: for INVALID_RECORD,
    (index in the batch, message) of the records that are to blame (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str | None = None, *, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.record_errors = record_errors

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (self.code, self.message, self.record_errors)


def _made_again(code: ErrorCode, message: str | None, record_errors: tuple[tuple[int, str], ...]) -> ApiException:
    return ApiException(code, message, record_errors=record_errors)
