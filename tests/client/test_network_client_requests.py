"""NetworkClient with a connection that works: requests in flight, answers, and what makes a node ready."""

from __future__ import annotations

import struct
import threading
from dataclasses import replace

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DisconnectedError, UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import (
    INIT_PRODUCER_ID,
    PRODUCE,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.client.rig import REQUEST_TIMEOUT_MS, Rig, answer_bytes, errors, frame, speaking
from tests.waiting import HOUR_MS


def test_answers_come_with_the_tag_and_the_time_of_their_request(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        held = broker.faults.hold(ApiKey.INIT_PRODUCER_ID)
        connection.change = lambda _: answer_bytes(INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=42), 1)
        rig.send("mine")
        sent_ms = rig.now_ms
        rig.pass_ms(7)
        rig.poll_until(lambda: held.hits)
        held.remove()
        (response,) = rig.responses()
        assert isinstance(response.body, InitProducerIdResponse)
        assert response.body.producer_id == 42
        assert (response.node_id, response.api, response.version) == (1, INIT_PRODUCER_ID, INIT_PRODUCER_ID.max_version)
        assert (response.tag, response.error, response.sent_ms, response.latency_ms) == ("mine", None, sent_ms, 7)


def test_bytes_behind_an_answer_are_passed_over(broker: EmbeddedBroker) -> None:
    def padded(data: bytes) -> bytes:
        (size,) = struct.unpack_from(">i", data)
        return frame(data[4 : 4 + size] + b"padding") + (padded(data[4 + size :]) if len(data) > 4 + size else b"")

    with Rig(broker) as rig:
        connection = rig.connected()
        held = rig.send_held(2)
        connection.change = padded
        held.remove()
        bodies = [response.body for response in rig.responses(2)]
        assert [type(body) for body in bodies] == [InitProducerIdResponse] * 2


def test_up_to_the_limit_requests_are_in_flight_and_answered_in_order(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        rig.connected()
        held = rig.send_held(5)
        assert rig.client.in_flight_count(1) == 5
        assert not rig.ready()
        with pytest.raises(UsageError, match="is not ready for a request"):
            rig.send()
        held.remove()
        responses = rig.responses(5)
        ids = [response.body.producer_id for response in responses if isinstance(response.body, InitProducerIdResponse)]
        assert [response.tag for response in responses] == list(range(5))
        assert len(ids) == 5
        assert ids == sorted(set(ids))
        assert rig.ready()


def test_a_request_that_is_not_wholly_sent_keeps_the_next_one_back(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        produced = broker.faults.watch(ApiKey.PRODUCE)
        records = [bytes(1 << 20)] * 20
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
        connection.room = 15 << 20
        rig.client.send(1, PRODUCE, ProduceRequest(topic_data=[data]), rig.now_ms, max_version=9)
        rig.poll_until(lambda: connection.room == 0)
        assert not rig.ready()
        connection.room = None
        rig.poll_until(rig.ready)
        produced.wait()


def test_a_request_without_an_answer_is_done_once_it_is_sent(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        rig.connected()
        produced = broker.faults.watch(ApiKey.PRODUCE)
        rig.client.send(1, PRODUCE, ProduceRequest(acks=0), rig.now_ms, expects_answer=False, tag="silent")
        (response,) = rig.responses()
        assert (response.tag, response.body, response.error) == ("silent", None, None)
        produced.wait()
        rig.send("spoken")
        assert [response.tag for response in rig.responses()] == ["spoken"]


def test_a_throttled_node_is_not_ready_until_its_time_is_over_and_its_requests_get_that_time(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        first = broker.faults.hold(ApiKey.INIT_PRODUCER_ID, applied=True)
        broker.faults.hold(ApiKey.INIT_PRODUCER_ID)
        rig.send("first")
        rig.send("second")
        connection.change = lambda _: answer_bytes(INIT_PRODUCER_ID, InitProducerIdResponse(throttle_time_ms=5_000), 1)
        rig.poll_until(lambda: first.hits)
        first.remove()
        rig.responses()
        assert not rig.ready()
        assert rig.client.poll_delay_ms(1, rig.now_ms) == 5_000
        rig.pass_ms(REQUEST_TIMEOUT_MS + 4_999)
        assert rig.poll() == []
        assert rig.ready()
        rig.pass_ms(1)
        assert errors(rig.poll()) == {DisconnectedError}


def test_brokers_that_throttled_by_themselves_are_not_waited_for(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.alter(ApiKey.API_VERSIONS, speaking({ApiKey.PRODUCE: (3, 5)}))
        broker.faults.alter(ApiKey.PRODUCE, lambda _request, answer: replace(answer, throttle_time_ms=5_000))
        rig.connected()
        rig.client.send(1, PRODUCE, ProduceRequest(), rig.now_ms)
        (response,) = rig.responses()
        assert getattr(response.body, "throttle_time_ms", None) == 5_000
        assert rig.ready()


def test_another_thread_wakes_a_poll(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        caller = threading.Timer(0.05, rig.client.wakeup)
        caller.start()
        assert rig.poll(HOUR_MS) == []
        caller.join()
