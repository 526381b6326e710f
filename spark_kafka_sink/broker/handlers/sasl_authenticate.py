"""SaslAuthenticate: one step of a login."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request, Session
from spark_kafka_sink.broker.sasl.login import authenticator_of, refuse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle_sasl_authenticate(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, SaslAuthenticateRequest)
    authenticator = authenticator_of(services, request)
    if not request.listener.is_sasl or authenticator.is_complete():
        text = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)
    try:
        answer = authenticator.authenticate(body.auth_bytes, services.timer.now_ms())
    except ApiException as error:
        refusal = SaslAuthenticateResponse(error.code, error.message)
        refuse(services, request, None if request.session.has_bare_sasl_tokens else refusal)
        return None
    is_bare = request.session.has_bare_sasl_tokens
    if authenticator.is_complete():
        _log_in(request.session, f"User:{authenticator.user}")
    if is_bare:
        request.answer_bare(answer)
        return None
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=authenticator.session_lifetime_ms())


def _log_in(session: Session, principal: str) -> None:
    session.principal = principal
    session.is_authenticated = True
    session.has_bare_sasl_tokens = False
