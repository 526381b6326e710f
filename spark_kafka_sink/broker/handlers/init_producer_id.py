"""InitProducerId: an id for an idempotent producer, from any broker; an epoch for a transactional one, from its coordinator."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.transactional_ids import as_understood, is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle_init_producer_id(services: BrokerServices, request: Request) -> InitProducerIdResponse:
    body = request.body
    assert isinstance(body, InitProducerIdRequest)
    try:
        producer = services.transaction_coordinator.init_producer_id(
            body.transactional_id,
            body.transaction_timeout_ms,
            _expected(body),
            is_coordinator=is_coordinator(services, body.transactional_id or ""),
        )
    except ApiException as error:
        raise ApiException(as_understood(error.code, request), error.message) from error
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _expected(body: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    has_id, has_epoch = body.producer_id != NO_PRODUCER_ID, body.producer_epoch != NO_PRODUCER_EPOCH
    if has_id is not has_epoch:
        raise ApiException(ErrorCode.INVALID_REQUEST)
    return ProducerIdAndEpoch(body.producer_id, body.producer_epoch) if has_id else None
