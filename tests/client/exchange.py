"""InitProducerId as the request of which a test needs no more than that it is one, and its answer."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.messages import RequestHeader
from tests.client.rig import Rig
from tests.client.scripted_broker import Connection

REQUEST_TIMEOUT_MS = 30_000


def send(rig: Rig, tag: object = None, node_id: int = 1, **options: Any) -> None:
    rig.client.send(node_id, INIT_PRODUCER_ID, InitProducerIdRequest(), rig.now_ms, tag=tag, **options)
    rig.poll()


def sent(rig: Rig, count: int) -> None:
    for tag in range(count):
        send(rig, tag)


def answer(connection: Connection, producer_id: int = 0, **options: Any) -> RequestHeader:
    header, body = connection.receive()
    assert isinstance(body, InitProducerIdRequest)
    connection.answer(header, InitProducerIdResponse(producer_id=producer_id), **options)
    return header


def errors(responses: list[ClientResponse]) -> set[type | None]:
    return {type(response.error) if response.error else None for response in responses}
