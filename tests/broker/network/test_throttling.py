"""An answer that tells the client to wait keeps the connection waiting as well (KIP-219)."""

from __future__ import annotations

import time

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.groups import HeartbeatResponse
from spark_kafka_sink.protocol.fields import Message
from tests.broker.network.held import heartbeat_frame, number_of
from tests.broker.network.servers import Server
from tests.waiting import HOUR_MS

THROTTLE_MS = 200


def throttled_once(_services: BrokerServices, request: Request) -> Message:
    return HeartbeatResponse(throttle_time_ms=THROTTLE_MS if number_of(request) == 0 else 0)


def throttled_for_an_hour(_services: BrokerServices, _request: Request) -> Message:
    return HeartbeatResponse(throttle_time_ms=HOUR_MS)


def test_the_next_request_is_read_after_the_time() -> None:
    with Server({ApiKey.HEARTBEAT: throttled_once}, num_network_threads=1) as server:
        client = server.client()
        began = time.monotonic()
        client.send(heartbeat_frame(0) + heartbeat_frame(1))
        assert client.receive_response(ApiKey.HEARTBEAT, 4)[0] == 0
        assert client.receive_response(ApiKey.HEARTBEAT, 4)[0] == 1
        assert time.monotonic() - began >= THROTTLE_MS / 1000


def test_the_answer_and_other_connections_do_not_wait() -> None:
    with Server({ApiKey.HEARTBEAT: throttled_for_an_hour}, num_network_threads=1) as server:
        client, other = server.client(), server.client()
        client.send(heartbeat_frame(0) + heartbeat_frame(1))
        client.receive()
        other.api_versions()
