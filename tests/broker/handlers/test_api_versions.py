"""ApiVersions tells the truth: the APIs that are served, in their versions, and the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.handler import Handler
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.request import Session
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.servers import services
from tests.broker.requests import Responses, request

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.HEARTBEAT: lambda _services, _request: None,
    ApiKey.PRODUCE: lambda _services, _request: None,
}


def ask(
    version: int,
    name: str = "test",
    software_version: str = "1.0",
    *,
    header_version: int | None = None,
    session: Session | None = None,
    **config: Any,
) -> ApiVersionsResponse:
    responses = Responses()
    body = ApiVersionsRequest(name, software_version)
    asked = request(body, ApiKey.API_VERSIONS, version, responses=responses, header_version=header_version, session=session)
    KafkaApis(services(**config), handlers=HANDLERS).handle(asked)
    answer = responses.answer()
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def ranges(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_the_apis_are_those_that_have_a_handler(version: int) -> None:
    heartbeat, produce = ALL_APIS[ApiKey.HEARTBEAT], ALL_APIS[ApiKey.PRODUCE]

    assert ranges(ask(version)) == {
        # Said, as Kafka says it, for the sake of old clients; v3 is the first that is served.
        ApiKey.PRODUCE: (0, produce.max_version),
        ApiKey.HEARTBEAT: (heartbeat.min_version, heartbeat.max_version),
        ApiKey.API_VERSIONS: (0, 4),
    }


@pytest.mark.parametrize(("level", "listed"), [(0, False), (1, True), (2, True)])
def test_transactions_are_finalized_at_the_configured_version(level: int, listed: bool) -> None:
    answer = ask(4, transaction_version=level)
    finalized = {feature.name: (feature.min_version_level, feature.max_version_level) for feature in answer.finalized_features}

    assert answer.finalized_features_epoch >= 0
    assert finalized.get("transaction.version") == ((level, level) if listed else None)
    assert finalized["metadata.version"] == (27, 27)


@pytest.mark.parametrize(("version", "names"), [(3, {"metadata.version"}), (4, {"metadata.version", "transaction.version"})])
def test_features_from_0_on_are_kept_from_clients_that_cannot_read_them(version: int, names: set[str]) -> None:
    assert {feature.name for feature in ask(version).supported_features} == names


@pytest.mark.parametrize(
    ("name", "software_version"),
    [("", "1"), ("test", ""), ("-test", "1"), ("test", "1."), ("te st", "1"), ("t\n", "1"), ("é", "1")],
)
def test_a_software_name_that_fits_no_metric_is_an_invalid_request(name: str, software_version: str) -> None:
    answer = ask(3, name, software_version)

    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, ())


def test_older_versions_have_no_software_name() -> None:
    assert ask(2, "", "").error_code == 0


def test_the_session_knows_the_clients_software() -> None:
    session = Session("127.0.0.1", 1)
    ask(3, "librdkafka", "2.8.0", session=session)

    assert (session.client_software_name, session.client_software_version) == ("librdkafka", "2.8.0")


def test_an_unknown_version_is_answered_in_v0_with_the_versions_of_api_versions() -> None:
    answer = ask(0, header_version=99)

    assert (answer.error_code, ranges(answer)) == (ErrorCode.UNSUPPORTED_VERSION, {ApiKey.API_VERSIONS: (0, 4)})
