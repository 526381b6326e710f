"""How a test lets a client ask for metadata, step by step."""

from __future__ import annotations

from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.client.rig import Rig
from tests.client.scripted_broker import Connection, ScriptedBroker, versions


def cluster(*brokers: ScriptedBroker) -> MetadataResponse:
    listed = enumerate(brokers, start=1)
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=n, host=b.host, port=b.port) for n, b in listed])


def called(rig: Rig, *brokers: ScriptedBroker) -> ScriptedBroker:
    """Polls until the client connects to one of these; which one."""
    before = [len(broker.connections) for broker in brokers]
    rig.poll_until(lambda: any(broker.has_caller() for broker in brokers))
    return next(broker for broker, count in zip(brokers, before, strict=True) if len(broker.connections) > count)


def agreed(rig: Rig, connection: Connection) -> None:
    """Lets a connection that was accepted come to agree on versions."""
    header, _ = rig.receive(connection)
    connection.answer(header, versions())
    rig.poll_until(lambda: rig.client.has_ready_nodes(rig.now_ms))


def asked(rig: Rig, connection: Connection) -> None:
    """Receives a request for metadata and leaves it unanswered."""
    _, body = rig.receive(connection)
    assert isinstance(body, MetadataRequest)


def answered(rig: Rig, connection: Connection, response: MetadataResponse) -> None:
    header, body = rig.receive(connection)
    assert isinstance(body, MetadataRequest)
    before = len(rig.metadata.updates)
    connection.answer(header, response)
    assert rig.poll_until(lambda: len(rig.metadata.updates) > before) == []
