"""NetworkClient on its way to a broker: addresses, back-off, and an end to every attempt."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.connection_states import Resolver
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.network.channel import Address
from tests.client.rig import Rig
from tests.network.black_hole import black_hole
from tests.waiting import HOUR_MS

SETUP_TIMEOUT_MOST_MS = 12_000  # 10 s and a fifth


@pytest.mark.fault("connection", "refused")
def test_a_refused_connection_is_tried_again_after_its_back_off(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.unreachable(1)
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        delay = rig.client.poll_delay_ms(1, rig.now_ms)
        assert 0 < delay <= 60
        rig.ready()
        assert rig.client.is_unavailable(1)
        rig.pass_ms(delay)
        rig.ready()
        assert not rig.client.is_unavailable(1)


@pytest.mark.fault("connection", "the first address of a name is dead")
def test_a_host_whose_first_address_is_dead_is_reached_at_its_second(broker: EmbeddedBroker) -> None:
    resolved: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> list[Address]:
        resolved.append((host, port))
        return [Address(socket.AF_INET, ("127.0.0.1", rig.node(node_id).port)) for node_id in (2, 1)]

    with Rig(broker, resolver=resolver) as rig:
        broker.faults.unreachable(2)
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert not rig.has_called(1)
        rig.pass_ms(100)
        rig.connected()
        assert rig.has_called(1)
        assert resolved == [("127.0.0.1", rig.node(1).port)]


def test_a_name_that_does_not_resolve_is_a_failure_of_that_broker(broker: EmbeddedBroker) -> None:
    def no_such_name(host: str, port: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with Rig(broker, resolver=no_such_name) as rig:
        rig.metadata.due_in_ms = 0
        assert not rig.ready()
        assert rig.client.is_unavailable(1)
        error = f"could not connect to {broker.address(1)}: Name or service not known"
        assert rig.metadata.failures == [(rig.label(), error)]


@pytest.fixture
def nowhere() -> Iterator[Resolver]:
    """A resolver that leads every host into a black hole."""
    with black_hole() as (host, port):
        yield lambda *_: [Address(socket.AF_INET, (host, port))]


@pytest.mark.fault("connection", "black hole, bounded by the setup timeout")
def test_a_black_hole_is_given_up_after_the_setup_timeout_which_grows(broker: EmbeddedBroker, nowhere: Resolver) -> None:
    with Rig(broker, resolver=nowhere) as rig:
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


def test_a_poll_waits_no_longer_than_until_a_connection_is_given_up(broker: EmbeddedBroker, nowhere: Resolver) -> None:
    timeouts = {"socket.connection.setup.timeout.ms": "30", "socket.connection.setup.timeout.max.ms": "30"}
    with Rig(broker, resolver=nowhere, settings=timeouts) as rig:
        rig.ready()
        rig.poll(HOUR_MS)


def test_an_unknown_node_is_never_ready_and_asked_about_again_later(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        assert not rig.ready(99)
        assert rig.client.poll_delay_ms(99, rig.now_ms) == 50
        assert not rig.client.is_unavailable(99)
        with pytest.raises(UsageError, match="broker 99 is not ready"):
            rig.send(node_id=99)
