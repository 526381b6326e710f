"""What a broker answers where what was asked fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from spark_kafka_sink.broker.error_responses import error_response
from spark_kafka_sink.broker.faults.asked_parts import Wanted, merged
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.metadata import MetadataResponse

OF_THE_WHOLE_FETCH: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""A broker says these of a Fetch, and all others of its partitions."""


def failed_answer(request: Request, asked: Message, code: int, message: str | None) -> Message | None:
    """The answer in which all of `asked` fails; None where there is none, and the connection has to be closed."""
    if request.api.key is ApiKey.FETCH and code not in OF_THE_WHOLE_FETCH:
        return _failed_fetch(asked, code)
    return error_response(request.api, request.version, asked, code, message)  # type: ignore[arg-type]  # any code at all


def failed_metadata(answer: MetadataResponse, wanted: Wanted, code: int) -> Message:
    """A broker has the error beside a topic, and tells of the brokers as ever: an answer that is nothing but the error would
    leave a client without any."""
    failed = (replace(topic, error_code=code, partitions=()) for topic in answer.topics if wanted(topic, None))
    return merged(ApiKey.METADATA, answer, MetadataResponse(topics=tuple(failed)))


def _failed_fetch(asked: Any, code: int) -> Message:
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                tuple(PartitionData(partition.partition, code, -1, records=()) for partition in topic.partitions),
            )
            for topic in asked.topics
        )
    )
