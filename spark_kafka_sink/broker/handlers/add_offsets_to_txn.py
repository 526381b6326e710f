"""AddOffsetsToTxn: the partition of `__consumer_offsets` where a group's offsets are, as one more of the transaction."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.coordinator_partition import partition_for
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC
from spark_kafka_sink.broker.handlers.transactional_ids import as_understood, is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch
from spark_kafka_sink.protocol.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle_add_offsets_to_txn(services: BrokerServices, request: Request) -> AddOffsetsToTxnResponse:
    body = request.body
    assert isinstance(body, AddOffsetsToTxnRequest)
    topic = services.cluster.internal_topic(GROUP_METADATA_TOPIC)
    partition = (topic.name, partition_for(body.group_id, len(topic.partitions)))
    try:
        services.transaction_coordinator.add_partitions(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            [partition],
            is_coordinator=is_coordinator(services, body.transactional_id),
        )
    except ApiException as error:
        return AddOffsetsToTxnResponse(error_code=as_understood(error.code, request))
    return AddOffsetsToTxnResponse()
