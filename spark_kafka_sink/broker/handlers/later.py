"""For handlers that answer from another thread than the one that called them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


@contextmanager
def answering(request: Request) -> Iterator[None]:
    """Whatever goes wrong inside becomes the answer: KafkaApis, which does so for a handler, is not there any more."""
    try:
        yield
    except ApiException as refused:
        if not request.is_answered:
            request.answer_error(refused.code, refused.message)
    except Exception:
        logger.exception("Unexpected error while answering %s", request)
        if not request.is_answered:
            request.answer_error(ErrorCode.UNKNOWN_SERVER_ERROR)
