"""Every API can say any error of all that was asked, in every version; and says it of everything that was asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.error_responses import ERROR_RESPONSES, error_response
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.cluster import DescribeLogDirsResponse
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from spark_kafka_sink.protocol.apis.produce import ProduceRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import decode_response, encode_response
from tests.protocol.messages_strategy import messages

CODE = ErrorCode.NOT_COORDINATOR
VERSIONS = [(api, version) for api in ALL_APIS.values() for version in range(api.min_version, api.max_version + 1)]

CODES = {"error_code", "partition_error_code"}


def codes(message: Any) -> Iterator[int]:
    """Every error code in a message."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name in CODES:
            yield value
        elif isinstance(value, tuple):
            for element in value:
                if isinstance(element, Message):
                    yield from codes(element)


def asked_of(request: Any) -> int:
    """How many things a request asks for, counted the way its answer has to: by partition where it has partitions."""
    for name in ("topics", "topic_data", "topic_names", "resources", "groups", "groups_names", "transactional_ids",
                 "coordinator_keys", "v3_and_below_topics"):  # fmt: skip
        asked = getattr(request, name, None)
        if asked:
            return sum(len(getattr(one, _inner(one), ())) if _inner(one) else 1 for one in asked)
    return 0


def _inner(asked: Any) -> str:
    return next((name for name in ("partitions", "partition_data", "partition_indexes") if hasattr(asked, name)), "")


def test_every_api_has_its_error_response() -> None:
    assert set(ERROR_RESPONSES) == set(ALL_APIS)


@given(st.sampled_from(VERSIONS), st.data())
@settings(max_examples=300)
def test_an_error_response_can_be_written_and_says_the_error_everywhere(
    api_and_version: tuple[AnyApi, int], data: st.DataObject
) -> None:
    api, version = api_and_version
    request = data.draw(messages(api.request, version))
    response = error_response(api, version, request, CODE, "why")
    if api.key is ApiKey.PRODUCE and isinstance(request, ProduceRequest) and request.acks == 0:
        assert response is None
        return
    assert response is not None
    _, read = decode_response(api, version, b"".join(encode_response(api, version, 1, response)))
    said = [code for code in codes(read) if code]

    assert set(said) <= {CODE}
    if api.key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        # It has no room for an error before version 3: Kafka lists no folder, and its clients take that for a refusal.
        assert read == DescribeLogDirsResponse()
        return
    # Beside the parts there may be one code of the whole.
    assert len(said) >= min(1, asked_of(request))
    assert asked_of(request) == 0 or len(said) in (1, asked_of(request), asked_of(request) + 1)


@pytest.mark.parametrize("version", [3, 4])
def test_find_coordinator_says_it_of_the_whole_or_of_each_key(version: int) -> None:
    asked = FindCoordinatorRequest("g") if version < 4 else FindCoordinatorRequest(coordinator_keys=("a", "b"))
    answer = error_response(ALL_APIS[ApiKey.FIND_COORDINATOR], version, asked, CODE, None)

    assert isinstance(answer, FindCoordinatorResponse)
    if version < 4:
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (CODE, -1, "", -1)
    else:
        assert [(one.key, one.error_code, one.node_id) for one in answer.coordinators] == [("a", CODE, -1), ("b", CODE, -1)]
