"""Metadata is asked for whenever it is due: of whom, in which order, and again after every failure."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.network.channel import Address
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.client.rig import Rig, agreed, answered, asked, called, cluster
from tests.client.scripted_broker import ScriptedBroker


@pytest.fixture
def one() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def two() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


def test_the_first_metadata_comes_from_a_bootstrap_server(one: ScriptedBroker) -> None:
    with Rig(one, known=False) as rig:
        rig.metadata.due_in_ms = 0
        assert called(rig, one) is one
        agreed(rig, one.connections[0])
        answered(rig, one.connections[0], cluster(one))
        request, response, label = rig.metadata.updates[0]
        assert response.brokers[0].port == one.port
        assert label == f"bootstrap server {one.server}"
        assert not request.partial
        assert rig.metadata.known == {1: Node(1, one.host, one.port)}


def test_nothing_is_asked_or_connected_before_it_is_due(one: ScriptedBroker) -> None:
    with Rig(one) as rig:
        rig.metadata.due_in_ms = 40
        rig.poll(10)
        assert not one.has_caller()
        rig.metadata.due_in_ms = 0
        assert called(rig, one) is one


def test_of_several_bootstrap_servers_any_that_lives_will_do() -> None:
    failures = []
    for dead_number in (0, 1):
        with ScriptedBroker() as one, ScriptedBroker() as two, Rig(one, two, known=False) as rig:
            dead, alive = (one, two)[dead_number], (two, one)[dead_number]
            dead.stop_listening()
            rig.metadata.due_in_ms = 0
            assert called(rig, alive) is alive
            failures += [label == f"bootstrap server {dead.server}" for label, _ in rig.metadata.failures]
    assert failures == [True], "both rigs begin with the same one of the two, which is dead in one of the cases"


def test_while_it_is_due_no_node_is_ready_for_anything_else(one: ScriptedBroker) -> None:
    with Rig(one) as rig:
        rig.connected(one)
        rig.metadata.due_in_ms = 0
        assert not rig.ready()
        rig.poll()
        assert rig.ready()


def test_one_request_is_on_its_way_at_a_time(one: ScriptedBroker) -> None:
    with Rig(one) as rig:
        connection = rig.connected(one)
        rig.metadata.due_in_ms = 0
        for _ in range(3):
            rig.poll()
        assert rig.client.in_flight_count() == 1
        answered(rig, connection, cluster(one))
        assert rig.client.in_flight_count() == 0


def test_who_is_asked_is_told_from_the_first_attempt_to_connect_on(one: ScriptedBroker) -> None:
    with Rig(one, known=False) as rig:
        rig.metadata.due_in_ms = 0
        label = f"bootstrap server {one.server}"
        rig.poll()
        assert rig.metadata.asked == (label, "being connected to")
        called(rig, one)
        agreed(rig, one.connections[0])
        asked(rig, one.connections[0])
        assert rig.metadata.asked == (label, "no answer yet")


def test_a_connection_that_others_began_is_told_of_when_it_is_waited_for(one: ScriptedBroker) -> None:
    with Rig(one) as rig:
        rig.ready()
        rig.metadata.due_in_ms = 0
        rig.poll()
        assert rig.metadata.asked == (f"broker 1 ({one.server})", "being connected to")


def test_the_node_that_owes_least_is_asked(one: ScriptedBroker, two: ScriptedBroker) -> None:
    with Rig(one, two) as rig:
        rig.connected(one, 1)
        second = rig.connected(two, 2)
        rig.client.send(1, INIT_PRODUCER_ID, InitProducerIdRequest(), rig.now_ms)
        rig.poll()
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {2}
        rig.metadata.due_in_ms = 0
        asked(rig, second)


def test_of_nodes_without_a_connection_the_one_tried_longest_ago_is_next(one: ScriptedBroker, two: ScriptedBroker) -> None:
    with Rig(one, two) as rig:
        one.stop_listening()
        rig.ready(1)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        rig.pass_ms(1_000)
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {2}


def test_while_known_brokers_may_live_the_bootstrap_servers_are_not_asked(one: ScriptedBroker, two: ScriptedBroker) -> None:
    with Rig(two) as rig:
        rig.metadata.known = {1: Node(1, one.host, one.port)}
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {1}


def test_a_bootstrap_server_whose_name_does_not_resolve_is_a_failed_attempt(one: ScriptedBroker) -> None:
    def no_such_name(host: str, port: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with Rig(one, known=False, resolver=no_such_name) as rig:
        rig.metadata.due_in_ms = 0
        rig.poll()
        error = f"could not connect to {one.server}: Name or service not known"
        assert rig.metadata.failures == [(f"bootstrap server {one.server}", error)]


def test_a_connection_under_way_is_waited_for_before_another_is_made(one: ScriptedBroker, two: ScriptedBroker) -> None:
    with Rig(one, two) as rig:
        rig.metadata.due_in_ms = 0
        first = called(rig, one, two)
        for _ in range(3):
            rig.poll(10)
        assert not (two if first is one else one).has_caller()


@pytest.mark.parametrize("how", ["closed", "reset", "timeout", "poisoned"])
def test_a_request_that_fails_is_told_with_its_cause_and_made_again(one: ScriptedBroker, how: str) -> None:
    with Rig(one) as rig:
        connection = rig.connected(one)
        rig.metadata.due_in_ms = 0
        asked(rig, connection)
        endings: dict[str, Callable[[], None]] = {
            "closed": connection.close,
            "reset": connection.reset,
            "timeout": lambda: rig.pass_ms(30_000),
            "poisoned": lambda: connection.send_bytes(b"HTTP/1.1"),
        }
        endings[how]()
        rig.poll_until(lambda: rig.metadata.failures)
        label, error = rig.metadata.failures[0]
        words = {"closed": "closed", "reset": "reset", "timeout": "did not answer METADATA", "poisoned": "HTTP"}
        assert label == f"broker 1 ({one.server})"
        assert words[how] in error
        assert rig.metadata.requested == 1
        rig.pass_ms(1_000)
        assert called(rig, one) is one


def test_a_broker_that_speaks_no_version_of_it_is_told_as_a_failure(one: ScriptedBroker) -> None:
    with Rig(one) as rig:
        rig.connected(one, ranges={ApiKey.METADATA: (0, 0)})
        rig.metadata.due_in_ms = 0
        rig.poll()
        assert "speaks METADATA v0 to v0" in rig.metadata.failures[0][1]
        assert rig.client.in_flight_count() == 0


def test_a_connection_lost_while_nothing_is_due_is_no_failed_attempt_but_asks_for_an_update(one: ScriptedBroker) -> None:
    with Rig(one) as rig:
        connection = rig.connected(one)
        connection.close()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.metadata.failures == []
        assert rig.metadata.requested == 1


def test_a_broker_that_moved_is_connected_to_at_its_new_place(one: ScriptedBroker, two: ScriptedBroker) -> None:
    with Rig(one) as rig:
        connection = rig.connected(one)
        rig.metadata.known = {1: Node(1, two.host, two.port)}
        connection.close()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        rig.pass_ms(100)
        assert not rig.ready()
        assert called(rig, one, two) is two
        agreed(rig, two.connections[0])
        assert rig.ready()


def test_nobody_left_to_ask_is_waited_out_not_spun_on(one: ScriptedBroker) -> None:
    one.stop_listening()
    backoff = {"reconnect.backoff.ms": 40, "reconnect.backoff.max.ms": 40}
    with Rig(one, known=False, settings=backoff) as rig:
        rig.metadata.due_in_ms = 0
        rig.poll_until(lambda: rig.metadata.failures)
        assert rig.client.least_loaded_node(rig.now_ms) is None
        began = time.monotonic()
        rig.poll(60_000)
        assert 0.035 < time.monotonic() - began < 5
