"""KafkaApis answers every request once: as its handler says, with an error where that one fails, or by closing the connection."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.common import Handler
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.request import Request, ResponseAction
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.groups import HeartbeatRequest, HeartbeatResponse
from spark_kafka_sink.protocol.apis.produce import ProduceRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.broker.network.servers import services
from tests.broker.requests import Responses, request

HEARTBEAT = HeartbeatRequest("group", 1, "member")


def apis(handler: Handler, key: ApiKey = ApiKey.HEARTBEAT) -> KafkaApis:
    return KafkaApis(services(), handlers={key: handler})


def test_an_api_exception_becomes_the_apis_error_response() -> None:
    def refuse(_services: BrokerServices, _request: Request) -> Message:
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID)

    responses = Responses()
    apis(refuse).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))

    assert responses.answer() == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)


def test_any_other_exception_is_logged_and_an_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_services: BrokerServices, _request: Request) -> Message:
        raise ZeroDivisionError("a defect")

    responses = Responses()
    apis(fail).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))

    assert responses.answer() == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "a defect" in caplog.text


def test_a_request_that_nobody_waits_for_closes_its_connection_when_it_fails() -> None:
    def refuse(_services: BrokerServices, _request: Request) -> Message:
        raise ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    responses = Responses()
    apis(refuse, ApiKey.PRODUCE).handle(request(ProduceRequest(acks=0), ApiKey.PRODUCE, responses=responses))

    assert responses.actions == [ResponseAction.CLOSE_CONNECTION]


def test_an_answer_that_does_not_fit_becomes_an_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    responses = Responses()
    apis(lambda _services, _request: HeartbeatResponse(error_code=2**15)).handle(
        request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses)
    )

    assert responses.answer() == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "error_code" in caplog.text
