"""NetworkClient on one connection: versions, requests in flight, answers, and every way in which a connection ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.client.addresses import Resolver
from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.errors import DisconnectedError, ProtocolError, UnsupportedVersionError, UsageError
from spark_kafka_sink.network.channel import Address
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersionsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.headers import RequestHeader
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.client.rig import Rig
from tests.client.scripted_broker import Connection, ScriptedBroker, answer_bytes, frame, versions
from tests.network.black_hole import black_hole

REQUEST_TIMEOUT_MS = 30_000
SETUP_TIMEOUT_MOST_MS = 12_000  # 10 s and a fifth


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


# Connecting and agreeing on versions


def test_a_connection_begins_with_api_versions_in_the_newest_version() -> None:
    with ScriptedBroker() as broker, Rig(broker, settings={"client.id": "me"}) as rig:
        connection = rig.connecting(broker)
        header, body = connection.receive()
        assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, API_VERSIONS.max_version)
        assert header.client_id == "me"
        assert isinstance(body, ApiVersionsRequest)
        assert body.client_software_name == "spark-kafka-sink"
        assert not rig.ready()
        connection.answer(header, versions())
        rig.poll_until(rig.ready)
        assert rig.client.has_ready_nodes(rig.now_ms)


@pytest.mark.parametrize(("offered", "then"), [({18: (0, 3)}, 3), ({}, 0), ({3: (0, 9)}, 0)])
def test_a_broker_that_answers_in_v0_that_it_does_not_know_the_version_is_asked_again(
    offered: dict[int, tuple[int, int]], then: int
) -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connecting(broker)
        header, _ = connection.receive()
        connection.answer(header, versions(offered, ErrorCode.UNSUPPORTED_VERSION), version=0)
        again, _ = rig.receive(connection)
        assert (again.api_key, again.api_version) == (ApiKey.API_VERSIONS, then)
        connection.answer(again, versions())
        rig.poll_until(rig.ready)


def test_a_broker_that_refuses_every_version_is_left_alone_until_its_back_off_is_over() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connecting(broker)
        for version in (4, 0):
            header, _ = rig.receive(connection)
            assert header.api_version == version
            connection.answer(header, versions({}, ErrorCode.UNSUPPORTED_VERSION), version=0)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert connection.is_closed_by_client()
        assert not rig.ready()
        assert 0 < rig.client.poll_delay_ms(1, rig.now_ms) <= 60
        assert rig.metadata.requested == 1


def test_another_error_in_api_versions_ends_the_connection_with_its_name() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        rig.metadata.due_in_ms = 0
        connection = rig.connecting(broker)
        header, _ = connection.receive()
        connection.answer(header, versions({}, ErrorCode.INVALID_REQUEST))
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        label, error = rig.metadata.failures[0]
        assert label == f"broker 1 ({broker.server})"
        assert "refused ApiVersions: INVALID_REQUEST" in error


def test_the_version_is_the_highest_that_broker_client_and_caller_allow() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker, ranges={ApiKey.PRODUCE: (0, 9)})
        asked: list[int] = []

        def body(version: int) -> ProduceRequest:
            asked.append(version)
            return ProduceRequest()

        for limit in (None, 7):
            rig.client.send(1, PRODUCE, body, rig.now_ms, max_version=limit)
            rig.poll()
            header, _ = connection.receive()
            assert header.api_version == asked[-1]
        assert asked == [9, 7]


def test_having_no_version_in_common_is_a_response_and_the_connection_goes_on() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker, ranges={ApiKey.PRODUCE: (0, 2), ApiKey.INIT_PRODUCER_ID: (0, 0)})
        rig.client.send(1, PRODUCE, ProduceRequest(), rig.now_ms, tag="old")
        began = time.monotonic()
        (response,) = rig.poll(60_000)
        assert time.monotonic() - began < 5
        assert isinstance(response.error, UnsupportedVersionError)
        assert (response.tag, response.api, response.body) == ("old", PRODUCE, None)
        assert rig.client.in_flight_count() == 0
        send(rig)
        answer(connection)
        assert errors(rig.responses()) == {None}


def test_a_message_that_the_version_cannot_carry_is_a_response_too() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        rig.connected(broker, ranges={ApiKey.INIT_PRODUCER_ID: (0, 2)})
        rig.client.send(1, INIT_PRODUCER_ID, InitProducerIdRequest(producer_id=7, producer_epoch=1), rig.now_ms)
        assert errors(rig.responses()) == {UnsupportedVersionError}


# Requests and answers


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


# How connections end


def test_what_is_in_flight_on_a_reset_connection_fails_in_order() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        sent(rig, 3)
        connection.reset()
        responses = rig.responses(3)
        assert [r.tag for r in responses] == [0, 1, 2]
        assert errors(responses) == {DisconnectedError}
        assert rig.client.in_flight_count() == 0
        assert rig.client.is_unavailable(1)
        assert rig.metadata.requested == 1


def test_answers_given_before_a_connection_was_closed_still_count() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        sent(rig, 2)
        answer(connection)
        connection.close()
        first, second = rig.responses(2)
        assert (first.error, type(second.error)) == (None, DisconnectedError)


def poisons() -> list[Any]:
    """What a broker must not send in place of an answer to InitProducerId (correlation id 1, the first after ApiVersions)."""
    header = RequestHeader(INIT_PRODUCER_ID.key, INIT_PRODUCER_ID.max_version, 1, "")
    good = answer_bytes(header, InitProducerIdResponse())
    return [
        pytest.param(answer_bytes(header, InitProducerIdResponse(), correlation_id=2), "correlation id 2 where 1", id="other id"),
        pytest.param(frame(good[4:-1]), "INIT_PRODUCER_ID", id="truncated message"),
        pytest.param(frame(good[4:] + b"\0"), "INIT_PRODUCER_ID", id="message too long"),
        pytest.param(frame(b"\0"), "INIT_PRODUCER_ID", id="one byte"),
        pytest.param(b"\0\0\0\0", "a frame of 0 bytes", id="zero size"),
        pytest.param(b"\xff\xff\xff\xff", "a frame of -1 bytes", id="negative size"),
        pytest.param(b"\x06\x40\0\1", "a frame of 104,857,601 bytes", id="over the limit"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP", id="http"),
        pytest.param(b"\x15\x03\x03\0\x02\x02\x46", "TLS", id="tls alert"),
    ]


@pytest.mark.parametrize(("poison", "says"), poisons())
def test_a_poisoned_connection_is_closed_and_everything_in_flight_on_it_fails(poison: bytes, says: str) -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        sent(rig, 3)
        connection.send_bytes(poison)
        responses = rig.responses(3)
        assert [r.tag for r in responses] == [0, 1, 2]
        assert errors(responses) == {ProtocolError}
        assert says in str(responses[0].error)
        assert broker.server in str(responses[0].error)
        assert connection.is_closed_by_client()
        assert rig.client.is_unavailable(1)


@pytest.mark.parametrize(("poison", "says"), poisons())
def test_a_stranger_that_answers_api_versions_with_such_is_told_as_a_failure(poison: bytes, says: str) -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        rig.metadata.due_in_ms = 0
        connection = rig.connecting(broker)
        connection.send_bytes(poison)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.metadata.failures[0][0] == f"broker 1 ({broker.server})"
        assert rig.metadata.failures[0][1]


def test_a_connection_that_is_poisoned_and_reset_at_once_ends_once() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=[bytes(20 << 20)])])
        rig.client.send(1, PRODUCE, ProduceRequest(topic_data=[data]), rig.now_ms, max_version=9)
        rig.poll()
        connection.send_bytes(frame(b"\0\0\0\1"))
        connection.reset()
        assert errors(rig.responses()) == {ProtocolError}
        assert rig.client.is_unavailable(1)
        assert rig.metadata.requested == 1


def test_idle_connections_may_be_closed_at_once() -> None:
    with ScriptedBroker() as broker, Rig(broker, settings={"connections.max.idle.ms": 0}) as rig:
        connection = rig.connected(broker)
        rig.pass_ms(1)
        rig.poll()
        assert connection.is_closed_by_client()


def test_an_answer_to_no_request_poisons_the_connection() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        connection.send_bytes(frame(b"\0\0\0\1"))
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert connection.is_closed_by_client()


def test_a_request_not_answered_in_time_closes_its_connection_and_fails_all_on_it() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connected(broker)
        send(rig, "first")
        rig.pass_ms(REQUEST_TIMEOUT_MS - 1)
        send(rig, "second")
        assert rig.poll() == []
        rig.pass_ms(1)
        responses = rig.poll()
        assert [r.tag for r in responses] == ["first", "second"]
        assert errors(responses) == {DisconnectedError}
        error = responses[0].error
        assert error is not None
        assert error.facts["timed_out"] is True
        assert error.message == f"broker 1 ({broker.server}) did not answer INIT_PRODUCER_ID within 30,000 ms"
        assert connection.is_closed_by_client()
        assert rig.client.is_unavailable(1)


def test_a_request_can_have_a_timeout_of_its_own_and_a_poll_waits_no_longer_than_that() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        rig.connected(broker)
        send(rig, timeout_ms=40)
        began = time.monotonic()
        assert rig.poll(60_000) == []
        assert time.monotonic() - began < 5
        rig.pass_ms(40)
        assert errors(rig.poll()) == {DisconnectedError}


def test_api_versions_that_are_not_answered_in_time_end_the_connection() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connecting(broker)
        rig.pass_ms(REQUEST_TIMEOUT_MS)
        assert rig.poll() == []
        assert rig.client.is_unavailable(1)
        assert connection.is_closed_by_client()


def test_a_refused_connection_is_tried_again_after_its_back_off() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        broker.stop_listening()
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        delay = rig.client.poll_delay_ms(1, rig.now_ms)
        assert 0 < delay <= 60
        rig.ready()
        assert rig.client.is_unavailable(1)
        rig.pass_ms(delay)
        rig.ready()
        assert not rig.client.is_unavailable(1)


def test_a_host_whose_first_address_is_dead_is_reached_at_its_second() -> None:
    with ScriptedBroker() as dead, ScriptedBroker() as broker:
        dead.stop_listening()
        addresses = [Address(socket.AF_INET, ("127.0.0.1", port)) for port in (dead.port, broker.port)]
        with Rig(broker, resolver=lambda host, port: addresses) as rig:
            rig.ready()
            rig.poll_until(lambda: rig.client.is_unavailable(1))
            rig.pass_ms(100)
            rig.connected(broker)


def test_a_name_that_does_not_resolve_is_a_failure_of_that_broker() -> None:
    def no_such_name(host: str, port: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with ScriptedBroker() as broker, Rig(broker, resolver=no_such_name) as rig:
        rig.metadata.due_in_ms = 0
        assert not rig.ready()
        assert rig.client.is_unavailable(1)
        error = f"could not connect to {broker.server}: Name or service not known"
        assert rig.metadata.failures == [(f"broker 1 ({broker.server})", error)]


@pytest.fixture
def nowhere() -> Iterator[Resolver]:
    """A resolver that leads every host into a black hole."""
    with black_hole() as (host, port):
        yield lambda *_: [Address(socket.AF_INET, (host, port))]


def test_a_black_hole_is_given_up_after_the_setup_timeout_which_grows(nowhere: Resolver) -> None:
    with ScriptedBroker() as broker, Rig(broker, resolver=nowhere) as rig:
        rig.ready()
        rig.pass_ms(7_999)
        rig.poll()
        assert not rig.client.is_unavailable(1)
        rig.pass_ms(SETUP_TIMEOUT_MOST_MS - 7_999)
        rig.poll()
        assert rig.client.is_unavailable(1)
        rig.pass_ms(1000)
        rig.ready()
        rig.pass_ms(15_999)
        rig.poll()
        assert not rig.client.is_unavailable(1)


def test_a_poll_waits_no_longer_than_until_a_connection_is_given_up(nowhere: Resolver) -> None:
    timeouts = {"socket.connection.setup.timeout.ms": "30", "socket.connection.setup.timeout.max.ms": "30"}
    with ScriptedBroker() as broker, Rig(broker, resolver=nowhere, settings=timeouts) as rig:
        rig.ready()
        began = time.monotonic()
        rig.poll(60_000)
        assert time.monotonic() - began < 5


def test_an_idle_connection_is_closed_without_blame_and_can_be_made_again_at_once() -> None:
    with ScriptedBroker() as broker, Rig(broker, settings={"connections.max.idle.ms": 1_000}) as rig:
        connection = rig.connected(broker)
        rig.pass_ms(1_001)
        assert rig.poll() == []
        assert connection.is_closed_by_client()
        assert not rig.client.is_unavailable(1)
        assert rig.metadata.requested == 0
        assert rig.client.poll_delay_ms(1, rig.now_ms) == 0
        rig.connected(broker)


def test_another_thread_wakes_a_poll() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        caller = threading.Timer(0.05, rig.client.wakeup)
        caller.start()
        began = time.monotonic()
        assert rig.poll(60_000) == []
        assert time.monotonic() - began < 5
        caller.join()


def test_an_unknown_node_is_never_ready_and_asked_about_again_later() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        assert not rig.ready(99)
        assert rig.client.poll_delay_ms(99, rig.now_ms) == 50
        assert not rig.client.is_unavailable(99)
        with pytest.raises(UsageError, match="broker 99 is not ready"):
            send(rig, node_id=99)


def test_closing_the_client_closes_its_connections() -> None:
    with ScriptedBroker() as broker:
        rig = Rig(broker)
        connection = rig.connected(broker)
        rig.client.close()
        assert connection.is_closed_by_client()
        rig.client.wakeup()
