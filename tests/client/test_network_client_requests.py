"""NetworkClient with a connection that works: requests in flight, answers, and what makes a node ready."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from spark_kafka_sink.errors import DisconnectedError, UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdResponse
from spark_kafka_sink.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.client.rig import REQUEST_TIMEOUT_MS, Rig, answer, errors, send, sent
from tests.client.scripted_broker import ScriptedBroker, answer_bytes


def test_answers_come_with_the_tag_and_the_time_of_their_request() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        send(rig, "mine")
        sent_ms = rig.now_ms
        rig.pass_ms(7)
        answer(connection, 42)
        (response,) = rig.responses()
        assert isinstance(response.body, InitProducerIdResponse)
        assert response.body.producer_id == 42
        assert (response.node_id, response.api, response.version) == (1, INIT_PRODUCER_ID, INIT_PRODUCER_ID.max_version)
        assert (response.tag, response.error, response.sent_ms, response.latency_ms) == ("mine", None, sent_ms, 7)


def test_bytes_behind_an_answer_are_passed_over() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        sent(rig, 2)
        header, _ = rig.receive(connection)
        (size,) = struct.unpack_from(">i", padded := answer_bytes(header, InitProducerIdResponse(producer_id=42)))
        connection.send_bytes(struct.pack(">i", size + 7) + padded[4:] + b"padding")
        answer(connection, 43)
        bodies = [response.body for response in rig.responses(2)]
        assert [body.producer_id for body in bodies if isinstance(body, InitProducerIdResponse)] == [42, 43]


def test_up_to_the_limit_requests_are_in_flight_and_answered_in_order() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        sent(rig, 5)
        assert rig.client.in_flight_count(1) == 5
        assert not rig.ready()
        with pytest.raises(UsageError, match="is not ready for a request"):
            send(rig)
        for number in range(5):
            answer(connection, number)
        responses = rig.responses(5)
        assert [(r.tag, getattr(r.body, "producer_id", None)) for r in responses] == [(n, n) for n in range(5)]
        assert rig.ready()


def test_a_request_that_is_not_wholly_sent_keeps_the_next_one_back() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        records = [bytes(1 << 20)] * 20
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
        rig.client.send(1, PRODUCE, ProduceRequest(topic_data=[data]), rig.now_ms, max_version=9)
        rig.poll()
        assert not rig.ready()
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(connection.receive_frame()))
        reader.start()
        rig.poll_until(rig.ready)
        reader.join()
        assert len(received[0]) > 20 << 20


def test_a_request_without_an_answer_is_done_once_it_is_sent() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        rig.client.send(1, PRODUCE, ProduceRequest(acks=0), rig.now_ms, expects_answer=False, tag="silent")
        (response,) = rig.responses()
        assert (response.tag, response.body, response.error) == ("silent", None, None)
        assert connection.receive()[0].api_key == ApiKey.PRODUCE
        send(rig, "spoken")
        answer(connection)
        assert [r.tag for r in rig.responses()] == ["spoken"]


def test_a_throttled_node_is_not_ready_until_its_time_is_over_and_its_requests_get_that_time() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        sent(rig, 2)
        header, _ = connection.receive()
        connection.answer(header, InitProducerIdResponse(throttle_time_ms=5_000))
        rig.responses()
        assert not rig.ready()
        assert rig.client.poll_delay_ms(1, rig.now_ms) == 5_000
        rig.pass_ms(REQUEST_TIMEOUT_MS + 4_999)
        assert rig.poll() == []
        assert rig.ready()
        rig.pass_ms(1)
        assert errors(rig.poll()) == {DisconnectedError}


def test_brokers_that_throttled_by_themselves_are_not_waited_for() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker, ranges={ApiKey.PRODUCE: (3, 5)})
        rig.client.send(1, PRODUCE, ProduceRequest(), rig.now_ms)
        rig.poll()
        header, _ = connection.receive()
        connection.answer(header, ProduceResponse(throttle_time_ms=5_000))
        rig.responses()
        assert rig.ready()


def test_another_thread_wakes_a_poll() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        caller = threading.Timer(0.05, rig.client.wakeup)
        caller.start()
        began = time.monotonic()
        assert rig.poll(60_000) == []
        assert time.monotonic() - began < 5
        caller.join()
