"""DescribeCluster: who the brokers are (KIP-700)."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import BrokerState
from spark_kafka_sink.broker.handlers import authorized_operations
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle_describe_cluster(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DescribeClusterRequest)
    _check_endpoint(body.endpoint_type)
    image = services.cluster.image
    listed = sorted(node for node, broker in image.brokers.items() if broker.is_up or body.include_fenced_brokers)
    asked = body.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=services.cluster.cluster_id,
        controller_id=services.cluster.controller_id(),
        brokers=tuple(_broker(image.brokers[node], request.listener) for node in listed),
        cluster_authorized_operations=authorized_operations.CLUSTER if asked else authorized_operations.NOT_ASKED,
    )


def _check_endpoint(endpoint_type: int) -> None:
    """A controller is asked at its own address (KIP-919), which this broker has none of."""
    if endpoint_type == _CONTROLLERS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise ApiException(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if endpoint_type != _BROKERS:
        raise ApiException(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")


def _broker(broker: BrokerState, listener: Listener) -> DescribeClusterBroker:
    return DescribeClusterBroker(broker.node_id, *broker.endpoint(listener.name), broker.rack, not broker.is_up)
