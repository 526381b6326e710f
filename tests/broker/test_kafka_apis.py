"""KafkaApis answers every request once: as its handler says, with an error where that one fails, or by closing the connection."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.faults.effects import Serve
from spark_kafka_sink.broker.handlers.common import Handler
from spark_kafka_sink.broker.kafka_apis import Faults, KafkaApis
from spark_kafka_sink.broker.network.listener import Listener, SecurityProtocol
from spark_kafka_sink.broker.network.request import Request, ResponseAction, Session
from spark_kafka_sink.broker.sasl.sasl_server_authenticator import SaslServerAuthenticator, sasl_servers
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.groups import HeartbeatRequest, HeartbeatResponse
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from spark_kafka_sink.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.network.servers import services
from tests.broker.requests import Responses, request

HEARTBEAT = HeartbeatRequest("group", 1, "member")
SASL = Listener(security_protocol=SecurityProtocol.SASL_PLAINTEXT)


def apis(handler: Handler, key: ApiKey = ApiKey.HEARTBEAT, faults: Faults | None = None) -> KafkaApis:
    return KafkaApis(services(), handlers={key: handler}, faults=faults)


def answered(_services: BrokerServices, _request: Request) -> Message:
    return HeartbeatResponse(throttle_time_ms=5)


def test_what_a_handler_returns_is_the_answer() -> None:
    responses = Responses()
    apis(answered).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))

    assert responses.answers() == [(7, HeartbeatResponse(throttle_time_ms=5))]


def test_a_handler_that_returns_nothing_answers_later() -> None:
    responses = Responses()
    asked = request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses)
    apis(lambda _services, _request: None).handle(asked)
    assert responses.sent == []
    asked.answer(HeartbeatResponse())

    assert responses.answers() == [(7, HeartbeatResponse())]


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


def test_a_handler_that_fails_after_its_answer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def answer_and_fail(_services: BrokerServices, asked: Request) -> Message:
        asked.answer(HeartbeatResponse())
        raise ZeroDivisionError("too late")

    responses = Responses()
    apis(answer_and_fail).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))

    assert responses.answer() == HeartbeatResponse()
    assert "too late" in caplog.text


def test_a_second_answer_is_logged_and_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    responses = Responses()
    asked = request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses)
    asked.answer(HeartbeatResponse())
    asked.answer(HeartbeatResponse(error_code=3))
    asked.answer_nothing()
    asked.close_connection()

    assert responses.answers() == [(7, HeartbeatResponse())]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


def test_an_answer_that_does_not_fit_becomes_an_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    responses = Responses()
    apis(lambda _services, _request: HeartbeatResponse(error_code=2**15)).handle(
        request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses)
    )

    assert responses.answer() == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "error_code" in caplog.text


def test_an_answer_of_another_type_becomes_an_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    responses = Responses()
    asked = request(DescribeClusterRequest(False), ApiKey.DESCRIBE_CLUSTER, responses=responses)
    apis(answered, ApiKey.DESCRIBE_CLUSTER).handle(asked)
    answer = responses.answer()

    assert isinstance(answer, DescribeClusterResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "cannot be encoded" in caplog.text


def test_the_error_of_a_produce_request_names_every_partition() -> None:
    def refuse(_services: BrokerServices, _request: Request) -> Message:
        raise ApiException(ErrorCode.INVALID_REQUIRED_ACKS, "no such acks")

    topic = TopicProduceData("t", partition_data=(PartitionProduceData(0, ()), PartitionProduceData(3, ())))
    responses = Responses()
    apis(refuse, ApiKey.PRODUCE).handle(
        request(ProduceRequest(acks=5, topic_data=(topic,)), ApiKey.PRODUCE, 9, responses=responses)
    )
    answer = responses.answer()

    assert isinstance(answer, ProduceResponse)
    (said,) = answer.responses
    assert [(p.index, p.error_code, p.error_message) for p in said.partition_responses] == [
        (0, ErrorCode.INVALID_REQUIRED_ACKS, "no such acks"),
        (3, ErrorCode.INVALID_REQUIRED_ACKS, "no such acks"),
    ]


# Login


def handle_handshake(_services: BrokerServices, _request: Request) -> Message:
    return SaslHandshakeResponse(mechanisms=("PLAIN",))


@pytest.mark.parametrize(
    ("body", "key", "served"),
    [
        (ApiVersionsRequest("test", "1"), ApiKey.API_VERSIONS, True),
        (SaslHandshakeRequest("PLAIN"), ApiKey.SASL_HANDSHAKE, True),
        (HEARTBEAT, ApiKey.HEARTBEAT, False),
    ],
)
def test_before_a_login_only_what_a_login_needs_is_served(body: Message, key: ApiKey, served: bool) -> None:
    handlers: Mapping[ApiKey, Handler] = {ApiKey.HEARTBEAT: answered, ApiKey.SASL_HANDSHAKE: handle_handshake}
    responses = Responses()
    KafkaApis(services(), handlers=handlers).handle(request(body, key, responses=responses, listener=SASL))

    assert responses.actions == [ResponseAction.SEND if served else ResponseAction.CLOSE_CONNECTION]


def test_after_a_login_everything_is_served() -> None:
    responses = Responses()
    authenticator = SaslServerAuthenticator(sasl_servers(["PLAIN"], Credentials({"alice": "secret"})))
    authenticator.handshake("PLAIN", 0)
    authenticator.authenticate(b"\0alice\0secret", 0)
    session = Session("127.0.0.1", 1, sasl_state=authenticator)
    apis(answered).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses, listener=SASL, session=session))

    assert responses.actions == [ResponseAction.SEND]


# Faults


class Script:
    """Faults that keep what they were asked, and serve it or not as a test says."""

    def __init__(self, *, serves: bool, takes_answers: bool = False) -> None:
        self.serves = serves
        self.takes_answers = takes_answers
        self.asked: list[tuple[Request, Serve]] = []
        self.answers: list[Message | None] = []

    def handle(self, request: Request, serve: Serve) -> None:
        self.asked.append((request, serve))
        request.on_response = self.answered
        if self.serves:
            serve(request)

    def answered(self, request: Request, answer: Message | None) -> bool:
        self.answers.append(answer)
        return self.takes_answers


def test_faults_are_asked_before_the_handler_and_told_its_answer() -> None:
    faults, responses = Script(serves=True), Responses()
    apis(answered, faults=faults.handle).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))

    assert faults.answers == [HeartbeatResponse(throttle_time_ms=5)]
    assert responses.actions == [ResponseAction.SEND]


def test_faults_can_keep_a_request_from_its_handler_until_they_serve_it() -> None:
    served: list[Request] = []
    faults, responses = Script(serves=False), Responses()

    def handler(_services: BrokerServices, asked: Request) -> Message:
        served.append(asked)
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID)

    apis(handler, faults=faults.handle).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))
    assert (served, responses.sent) == ([], [])
    ((asked, serve),) = faults.asked
    serve(asked)

    assert responses.answer() == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)


def test_faults_can_hold_an_answer_and_give_it_another_correlation_id() -> None:
    faults, responses = Script(serves=True, takes_answers=True), Responses()
    apis(answered, faults=faults.handle).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))
    assert responses.sent == []
    faults.asked[0][0].deliver(faults.answers[0], correlation_id=8)

    assert responses.answers() == [(8, HeartbeatResponse(throttle_time_ms=5))]


def test_faults_can_cut_an_answer() -> None:
    faults, responses = Script(serves=True, takes_answers=True), Responses()
    apis(answered, faults=faults.handle).handle(request(HEARTBEAT, ApiKey.HEARTBEAT, responses=responses))
    (body,) = faults.answers
    assert body is not None
    faults.asked[0][0].deliver_part(body, 3)
    (cut,) = responses.sent

    assert (b"".join(cut.buffers), cut.announced) == (b"\0\0\0", 12)


def test_what_is_served_is_what_has_a_handler() -> None:
    assert apis(answered).served == {key: ALL_APIS[key] for key in (ApiKey.HEARTBEAT, ApiKey.API_VERSIONS)}
