"""Who the brokers are."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.handlers import authorized_operations
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.cluster import DescribeClusterRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.rig import Rig


def described(rig: Rig, version: int = 2, operations: bool = False, **fields: Any) -> Any:
    return rig.ask_api(DescribeClusterRequest(operations, **fields), ApiKey.DESCRIBE_CLUSTER, version)


@pytest.mark.parametrize("version", range(3))
def test_those_that_run(version: int) -> None:
    with Rig(brokers=3) as rig:
        rig.cluster.broker_down(1)
        answer = described(rig, version)

        assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [
            (2, "127.0.0.1", 9002),
            (3, "127.0.0.1", 9003),
        ]
        assert (answer.cluster_id, answer.controller_id) == (rig.cluster.cluster_id, 2)


def test_those_that_do_not_where_they_are_asked_for() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.broker_down(1)
        answer = described(rig, include_fenced_brokers=True)

        assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [(1, True), (2, False)]


def test_what_a_client_may_do_where_it_asks() -> None:
    with Rig() as rig:
        assert described(rig, operations=True).cluster_authorized_operations == authorized_operations.CLUSTER == 8096
        assert described(rig).cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_controllers_have_addresses_of_their_own(endpoint: int, code: ErrorCode) -> None:
    with Rig() as rig:
        answer = described(rig, endpoint_type=endpoint)

        assert (answer.error_code, answer.brokers, answer.cluster_id) == (code, (), "")
