"""What only the controller does in a cluster with ZooKeeper; with KRaft every broker forwards it."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.protocol.error_codes import ErrorCode


def check_is_controller(services: BrokerServices) -> None:
    """Raises ApiException NOT_CONTROLLER for a broker that clients are not told to be the controller, where that matters."""
    if services.config.release.has_zookeeper and services.node_id != services.cluster.controller_id():
        raise ApiException(ErrorCode.NOT_CONTROLLER)
