"""SaslHandshake: by which mechanism the client will log in, or log in again (KIP-368)."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl.login import authenticator_of, refuse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse


def handle_sasl_handshake(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, SaslHandshakeRequest)
    authenticator, now_ms = authenticator_of(services, request), services.timer.now_ms()
    if not request.listener.is_sasl or (authenticator.is_complete() and not authenticator.may_reauthenticate(now_ms)):
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    try:
        authenticator.handshake(body.mechanism, now_ms)
    except ApiException as error:
        refuse(services, request, SaslHandshakeResponse(error.code, authenticator.mechanisms))
        return None
    request.session.has_bare_sasl_tokens = request.version == 0
    return SaslHandshakeResponse(ErrorCode.NONE, authenticator.mechanisms)
