"""The login of a request's connection."""

from __future__ import annotations

import logging
from functools import partial

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.error_responses import error_response
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl.sasl_server_authenticator import Admission, SaslServerAuthenticator
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)


def authenticator_of(services: BrokerServices, request: Request) -> SaslServerAuthenticator:
    """That of the connection; its first request makes it."""
    session, config = request.session, services.config
    if session.sasl_state is None:
        credentials, mechanisms = services.credentials, config.sasl_mechanisms
        session.sasl_state = SaslServerAuthenticator(credentials, mechanisms, config.connections_max_reauth_ms)
    authenticator: SaslServerAuthenticator = session.sasl_state
    return authenticator


def is_admitted(services: BrokerServices, request: Request) -> bool:
    """Whether the request is to be served. One that is not is dealt with."""
    if not request.listener.is_sasl:
        return True
    admission = authenticator_of(services, request).admission(request.api.key, services.timer.now_ms())
    if admission is Admission.SERVE:
        return True
    logger.warning("%s is not served in this state of its connection's authentication", request)
    if admission is Admission.CLOSE:
        request.close_connection()
    else:
        text = f"Unexpected Kafka request of type {request.api.name} during SASL authentication."
        refuse(services, request, error_response(request.api, request.version, request.body, ErrorCode.ILLEGAL_SASL_STATE, text))
    return False


def refuse(services: BrokerServices, request: Request, body: Message | None) -> None:
    """A last answer, held back for a while: who tries passwords shall not do so fast. None: the connection is closed only."""
    end = request.close_connection if body is None else partial(request.answer_last, body)
    services.timer.after(services.config.connection_failed_authentication_delay_ms, end)
