"""NetworkClient when a connection ends: whoever ended it, all that is in flight on it fails, once and in order."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DisconnectedError, ProtocolError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import (
    INIT_PRODUCER_ID,
    PRODUCE,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.client.rig import REQUEST_TIMEOUT_MS, Rig, answer_bytes, errors, frame
from tests.waiting import HOUR_MS


def test_what_is_in_flight_on_a_connection_that_is_lost_fails_in_order(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        rig.connected()
        rig.send_held(3)
        broker.faults.unreachable(1)
        responses = rig.responses(3)
        assert [r.tag for r in responses] == [0, 1, 2]
        assert errors(responses) == {DisconnectedError}
        assert rig.client.in_flight_count() == 0
        assert rig.client.is_unavailable(1)
        assert rig.metadata.requested == 1


def test_answers_given_before_a_connection_was_closed_still_count(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        rig.connected()
        broker.faults.alter(ApiKey.INIT_PRODUCER_ID, lambda _request, answer: answer)
        broker.faults.cut_before(ApiKey.INIT_PRODUCER_ID)
        for tag in range(2):
            rig.send(tag)
        first, second = rig.responses(2)
        assert (first.error, type(second.error)) == (None, DisconnectedError)


def poisons() -> list[Any]:
    """What a broker must not send in place of an answer to InitProducerId (correlation id 1, the first after ApiVersions)."""
    good = answer_bytes(INIT_PRODUCER_ID, InitProducerIdResponse(), 1)
    other = answer_bytes(INIT_PRODUCER_ID, InitProducerIdResponse(), 2)
    return [
        pytest.param(other, "correlation id 2, expected 1", id="other id"),
        pytest.param(frame(good[4:-1]), "INIT_PRODUCER_ID", id="truncated message"),
        pytest.param(frame(b"\0"), "INIT_PRODUCER_ID", id="one byte"),
        pytest.param(b"\0\0\0\0", "a frame of 0 bytes", id="zero size"),
        pytest.param(b"\xff\xff\xff\xff", "a frame of -1 bytes", id="negative size"),
        pytest.param(b"\x06\x40\0\1", "a frame of 104,857,601 bytes", id="over the limit"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP", id="http"),
        pytest.param(b"\x15\x03\x03\0\x02\x02\x46", "TLS", id="tls alert"),
    ]


@pytest.mark.parametrize(("poison", "says"), poisons())
def test_a_poisoned_connection_is_closed_and_everything_in_flight_on_it_fails(
    broker: EmbeddedBroker, poison: bytes, says: str
) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        held = rig.send_held(3)
        connection.change = lambda _: poison
        held.remove()
        responses = rig.responses(3)
        assert [r.tag for r in responses] == [0, 1, 2]
        assert errors(responses) == {ProtocolError}
        assert says in str(responses[0].error)
        assert broker.address(1) in str(responses[0].error)
        assert connection.is_closed
        assert rig.client.is_unavailable(1)


@pytest.mark.parametrize(("poison", "says"), poisons())
def test_a_stranger_that_answers_api_versions_with_such_is_told_as_a_failure(
    broker: EmbeddedBroker, poison: bytes, says: str
) -> None:
    with Rig(broker) as rig:
        rig.change = lambda _: poison
        rig.ready()
        rig.metadata.due_in_ms = 0
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.metadata.failures[0][0] == rig.label()
        assert rig.metadata.failures[0][1]


def test_a_connection_that_is_poisoned_and_reset_at_once_ends_once(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        held = rig.send_held()
        connection.room = 1 << 20
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=[bytes(20 << 20)])])
        rig.client.send(1, PRODUCE, ProduceRequest(topic_data=[data]), rig.now_ms, max_version=9)
        rig.poll_until(lambda: connection.room == 0)
        connection.change = lambda _: frame(b"\0\0\0\7")
        held.remove()
        assert connection.waits_to_be_read()
        connection.send_error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        assert errors(rig.responses(2)) == {ProtocolError}
        assert rig.client.is_unavailable(1)
        assert rig.metadata.requested == 1


def test_idle_connections_may_be_closed_at_once(broker: EmbeddedBroker) -> None:
    with Rig(broker, settings={"connections.max.idle.ms": 0}) as rig:
        connection = rig.connected()
        rig.pass_ms(1)
        rig.poll()
        assert connection.is_closed


@pytest.mark.fault("hostile bytes", "wrong correlation id")
def test_an_answer_to_no_request_poisons_the_connection(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        connection.change = lambda came: came + frame(b"\0\0\0\2")
        rig.send()
        assert errors(rig.poll_until(lambda: rig.client.is_unavailable(1))) == {None}
        assert connection.is_closed


def test_a_request_not_answered_in_time_closes_its_connection_and_fails_all_on_it(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        connection = rig.connected()
        broker.faults.hold(ApiKey.INIT_PRODUCER_ID, times=None)
        rig.send("first")
        rig.pass_ms(REQUEST_TIMEOUT_MS - 1)
        rig.send("second")
        assert rig.poll() == []
        rig.pass_ms(1)
        responses = rig.poll()
        assert [r.tag for r in responses] == ["first", "second"]
        assert errors(responses) == {DisconnectedError}
        error = responses[0].error
        assert error is not None
        assert error.facts["timed_out"] is True
        assert error.message == f"{rig.label()} did not respond to INIT_PRODUCER_ID within 30,000 ms"
        assert connection.is_closed
        assert rig.client.is_unavailable(1)


def test_a_request_can_have_a_timeout_of_its_own_and_a_poll_waits_no_longer_than_that(broker: EmbeddedBroker) -> None:
    with Rig(broker, settings={"request.timeout.ms": HOUR_MS, "delivery.timeout.ms": 2 * HOUR_MS}) as rig:
        rig.connected()
        broker.faults.hold(ApiKey.INIT_PRODUCER_ID)
        rig.send(timeout_ms=40)
        assert rig.poll(HOUR_MS) == []
        rig.pass_ms(40)
        assert errors(rig.poll()) == {DisconnectedError}


@pytest.mark.fault("connection", "an idle connection is closed")
def test_an_idle_connection_is_closed_without_blame_and_can_be_made_again_at_once(broker: EmbeddedBroker) -> None:
    with Rig(broker, settings={"connections.max.idle.ms": 1_000}) as rig:
        connection = rig.connected()
        rig.pass_ms(1_001)
        assert rig.poll() == []
        assert connection.is_closed
        assert not rig.client.is_unavailable(1)
        assert rig.metadata.requested == 0
        assert rig.client.poll_delay_ms(1, rig.now_ms) == 0
        rig.connected()


def test_closing_the_client_closes_its_connections(broker: EmbeddedBroker) -> None:
    rig = Rig(broker)
    connection = rig.connected()
    rig.client.close()
    assert connection.is_closed
    rig.client.wakeup()
