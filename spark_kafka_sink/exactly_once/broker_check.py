"""Asks every broker of a cluster whether exactly-once works with it."""

from __future__ import annotations

import time
from typing import Final

from spark_kafka_sink.client.api_versions import api_versions_request, node_api_versions
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.producer.transactions.transaction_manager import FEATURE
from spark_kafka_sink.producer.transactions.verification import switched_off, too_old
from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersionsResponse
from spark_kafka_sink.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_VERIFICATION: Final = "transaction.partition.verification.enable"
_BROKER: Final = 4  # ConfigResource.Type.BROKER
_PATIENCE_S: Final = 5.0


def check_brokers(client: ClusterClient, deadline: float) -> None:
    """Raises UnsupportedVersionError for a broker that is too old, or does not verify transactions.

    Where transaction version 2 is finalized, every broker is new enough and epochs do what verification does for version 1. A
    broker that does not answer is passed over, as is one that does not let this client see its settings: tasks look at each
    broker that they write to.

    Args:
        client: asks them.
        deadline: on time.monotonic's clock.
    """
    if client.finalized_feature(FEATURE, deadline) >= 2:
        return
    brokers = client.brokers(deadline)
    soon = min(deadline, time.monotonic() + _PATIENCE_S)
    questions = [question for node_id in brokers for question in (_versions(node_id), _verification(node_id))]
    labels = [str(node) for node in brokers.values() for _ in range(2)]
    for label, answer in zip(labels, client.try_many(questions, soon), strict=True):
        if isinstance(answer, ApiVersionsResponse) and not answer.error_code:
            if (error := too_old(node_api_versions(label, answer))) is not None:
                raise error
        elif isinstance(answer, DescribeConfigsResponse):
            configs = (config for result in answer.results if not result.error_code for config in result.configs)
            if any(config.name == _VERIFICATION and config.value == "false" for config in configs):
                raise switched_off(label)


def _versions(node_id: int) -> ClusterRequest:
    return ClusterRequest(node_id, API_VERSIONS, api_versions_request())


def _verification(node_id: int) -> ClusterRequest:
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_VERIFICATION])
    return ClusterRequest(node_id, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
