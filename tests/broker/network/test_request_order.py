"""A connection has one request at a time, from its arrival until its answer is out: that keeps the order of what it sent."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from spark_kafka_sink.protocol.apis.produce import ProduceRequest
from spark_kafka_sink.protocol.fields import Message
from tests.broker.network.client import Client, request_frame
from tests.broker.network.held import Held, heartbeat_frame
from tests.broker.network.servers import Server
from tests.waiting import wait_until


def let_the_processor_turn(other: Client) -> None:
    """Requests of another connection of the same Processor: after them it has looked at every socket so often."""
    for _ in range(20):
        other.api_versions()


def test_pipelined_requests_come_to_the_handlers_one_after_another() -> None:
    held = Held()
    with Server({ApiKey.HEARTBEAT: held}, num_network_threads=1, num_io_threads=8) as server:
        client, other = server.client(), server.client()
        client.send(b"".join(map(heartbeat_frame, range(10))))
        for index in range(10):
            held.wait_for(index + 1)
            let_the_processor_turn(other)
            assert held.numbers == list(range(index + 1))
            held.answer(index)
        answers = [client.receive_response(ApiKey.HEARTBEAT, 4) for _ in range(10)]

    assert [correlation_id for correlation_id, _ in answers] == list(range(10))


def large_answer(_services: BrokerServices, _request: Request) -> Message:
    records = bytes(16 * 1024 * 1024)
    return FetchResponse(responses=(FetchableTopicResponse(partitions=(PartitionData(0, 0, 1, records=(records,)),)),))


def test_the_next_request_waits_until_the_answer_is_out_whole() -> None:
    held = Held()
    with Server({ApiKey.FETCH: large_answer, ApiKey.HEARTBEAT: held}, num_network_threads=1) as server:
        client, other = server.client(receive_buffer=50_000), server.client()
        client.send(request_frame(ApiKey.FETCH, 16, FetchRequest(), correlation_id=1) + heartbeat_frame(2))
        wait_until(lambda: client.socket.recv(1, 2) != b"")  # 2: MSG_PEEK. Its beginning is out
        let_the_processor_turn(other)
        assert held.requests == []
        assert client.receive_response(ApiKey.FETCH, 16)[0] == 1
        held.wait_for(1)
        held.answer(0)
        assert client.receive_response(ApiKey.HEARTBEAT, 4)[0] == 2


def test_a_request_without_an_answer_lets_the_next_one_in_when_it_is_done() -> None:
    held = Held()
    with Server({ApiKey.PRODUCE: held, ApiKey.HEARTBEAT: held}, num_network_threads=1) as server:
        client, other = server.client(), server.client()
        frames = [request_frame(ApiKey.PRODUCE, 9, ProduceRequest(acks=0), correlation_id=number) for number in range(3)]
        client.send(b"".join(frames) + heartbeat_frame(3))
        for index in range(3):
            held.wait_for(index + 1)
            let_the_processor_turn(other)
            assert [request.header.correlation_id for request in held.requests] == list(range(index + 1))
            held.requests[index].answer_nothing()
        held.wait_for(4)
        held.answer(3)
        # The first thing that comes back at all.
        assert client.receive_response(ApiKey.HEARTBEAT, 4)[0] == 3
