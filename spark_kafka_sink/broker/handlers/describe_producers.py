"""DescribeProducers: who has lately written to a partition, as its leader knows them (KIP-664)."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.topic_names import check_name
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)


def handle_describe_producers(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DescribeProducersRequest)
    return DescribeProducersResponse(topics=tuple(_topic(services, topic) for topic in body.topics))


def _topic(services: BrokerServices, topic: TopicRequest) -> TopicResponse:
    try:
        check_name(topic.name)
        if topic.name not in services.cluster.image.topics:
            text = "This server does not host this topic-partition."
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    except ApiException as error:
        code, message = error.code, error.message
        return TopicResponse(topic.name, tuple(PartitionResponse(index, code, message) for index in topic.partition_indexes))
    return TopicResponse(topic.name, tuple(_partition(services, topic.name, index) for index in topic.partition_indexes))


def _partition(services: BrokerServices, topic: str, index: int) -> PartitionResponse:
    try:
        log = services.replica_manager.led(topic, index).log
    except ApiException as error:
        return PartitionResponse(index, error.code, error.message)
    producers = tuple(ProducerState(*producer) for producer in log.active_producers())
    return PartitionResponse(index, ErrorCode.NONE, None, producers)
