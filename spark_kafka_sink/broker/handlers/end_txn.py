"""EndTxn: the outcome of a transaction. It is answered when that is decided; the markers follow."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.transactional_ids import as_understood, is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_metadata import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from spark_kafka_sink.protocol.transactions import EndTxnRequest, EndTxnResponse

_FIRST_OF_VERSION_2 = 5


def handle_end_txn(services: BrokerServices, request: Request) -> EndTxnResponse:
    body = request.body
    assert isinstance(body, EndTxnRequest)
    try:
        renewed = services.transaction_coordinator.end_transaction(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            body.committed,
            client_version=TRANSACTION_VERSION_2 if request.version >= _FIRST_OF_VERSION_2 else 0,
            is_coordinator=is_coordinator(services, body.transactional_id),
        )
    except ApiException as error:
        return EndTxnResponse(error_code=as_understood(error.code, request))
    return EndTxnResponse(producer_id=renewed.producer_id, producer_epoch=renewed.producer_epoch)
