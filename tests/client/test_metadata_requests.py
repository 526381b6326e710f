"""Metadata is asked for whenever it is due: of whom, in which order, and again after every failure."""

from __future__ import annotations

import errno
import os
import socket
import time
from dataclasses import replace

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from tests.client.rig import Rig, naming, speaking
from tests.waiting import HOUR_MS, until

ONE = (1,)


def test_the_first_metadata_comes_from_a_bootstrap_server(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE, known=()) as rig:
        broker.faults.alter(ApiKey.METADATA, naming(1))
        rig.metadata.due_in_ms = 0
        assert rig.updated().brokers[0].port == rig.node(1).port
        request, _, label = rig.metadata.updates[0]
        assert label == f"bootstrap server {broker.address(1)}"
        assert not request.partial
        assert rig.metadata.known == {1: rig.node(1)}


def test_nothing_is_asked_or_connected_before_it_is_due(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        rig.metadata.due_in_ms = 40
        rig.poll(10)
        assert rig.opened == []
        rig.metadata.due_in_ms = 0
        assert rig.called(1) == 1


def test_of_several_bootstrap_servers_any_that_lives_will_do() -> None:
    failures = []
    for dead in (1, 2):
        with EmbeddedBroker(2) as broker, Rig(broker, known=()) as rig:
            broker.faults.unreachable(dead)
            rig.metadata.due_in_ms = 0
            rig.called(3 - dead)
            failures += [label == f"bootstrap server {broker.address(dead)}" for label, _ in rig.metadata.failures]
    assert failures == [True], "both rigs begin with the same one of the two, which is dead in one of the cases"


def test_while_it_is_due_no_node_is_ready_for_anything_else(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        rig.connected()
        broker.faults.hold(ApiKey.METADATA)
        rig.metadata.due_in_ms = 0
        assert not rig.ready()
        rig.poll()
        assert rig.ready()


def test_one_request_is_on_its_way_at_a_time(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        rig.connected()
        rig.metadata.due_in_ms = 0
        held = rig.asked()
        for _ in range(3):
            rig.poll()
        assert rig.client.in_flight_count() == 1
        held.remove()
        rig.updated()
        assert rig.client.in_flight_count() == 0


def test_who_is_asked_is_told_from_the_first_attempt_to_connect_on(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE, known=()) as rig:
        rig.metadata.due_in_ms = 0
        label = f"bootstrap server {broker.address(1)}"
        rig.poll()
        assert rig.metadata.asked == (label, "being connected to")
        rig.asked()
        assert rig.metadata.asked == (label, "no response yet")


def test_a_port_that_connects_and_says_nothing_is_told_apart(broker: EmbeddedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        with Rig(broker, bootstrap=ONE, known=(), settings=servers) as rig:
            rig.metadata.due_in_ms = 0

            def asked() -> str:
                rig.poll()
                return "" if rig.metadata.asked is None else rig.metadata.asked[1]

            until(asked, lambda text: text == "connected, but it has not answered as a Kafka broker", "it connects")


def test_a_connection_that_others_began_is_told_of_when_it_is_waited_for(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        rig.ready()
        rig.metadata.due_in_ms = 0
        rig.poll()
        assert rig.metadata.asked == (rig.label(), "being connected to")


def test_the_node_that_owes_least_is_asked(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        rig.connected(1)
        rig.connected(2)
        rig.send_held()
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {2}
        rig.metadata.due_in_ms = 0
        rig.asked(2)


def test_of_nodes_without_a_connection_the_one_tried_longest_ago_is_next(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.unreachable(1)
        rig.ready(1)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        rig.pass_ms(1_000)
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {2}


def test_while_known_brokers_may_live_the_bootstrap_servers_are_not_asked(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=(2,), known=ONE) as rig:
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {1}


def test_a_connection_under_way_is_waited_for_before_another_is_made(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.hold(ApiKey.API_VERSIONS, times=None)
        rig.metadata.due_in_ms = 0
        first = rig.called(1, 2)
        for _ in range(3):
            rig.poll(10)
        assert not rig.has_called(3 - first)


@pytest.mark.parametrize("how", ["closed", "reset", "timeout", "poisoned"])
def test_a_request_that_fails_is_told_with_its_cause_and_made_again(broker: EmbeddedBroker, how: str) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        connection = rig.connected()
        if how in ("closed", "reset"):
            broker.faults.cut_before(ApiKey.METADATA)
        if how == "reset":
            connection.receive_error = OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if how == "poisoned":
            connection.change = lambda _: b"HTTP/1.1"
        rig.metadata.due_in_ms = 0
        if how == "timeout":
            rig.asked()
            rig.pass_ms(30_000)
        rig.poll_until(lambda: rig.metadata.requested)
        label, error = rig.metadata.failures[0]
        words = {"closed": "closed", "reset": "reset", "timeout": "did not respond to METADATA", "poisoned": "HTTP"}
        assert label == rig.label()
        assert words[how] in error
        assert rig.metadata.requested == 1
        rig.pass_ms(1_000)
        assert rig.called(1) == 1


def test_a_broker_that_speaks_no_version_of_it_is_told_as_a_failure(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        broker.faults.alter(ApiKey.API_VERSIONS, speaking({ApiKey.METADATA: (0, 0)}))
        rig.connected()
        rig.metadata.due_in_ms = 0
        rig.poll()
        assert "supports METADATA v0 to v0" in rig.metadata.failures[0][1]
        assert rig.client.in_flight_count() == 0


def test_a_connection_lost_while_nothing_is_due_is_no_failed_attempt_but_asks_for_an_update(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        rig.connected()
        broker.faults.unreachable(1)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.metadata.failures == []
        assert rig.metadata.requested == 1


def test_a_broker_that_moved_is_connected_to_at_its_new_place(broker: EmbeddedBroker) -> None:
    with Rig(broker, bootstrap=ONE) as rig:
        rig.connected()
        rig.metadata.known = {1: replace(rig.node(2), id=1)}
        broker.faults.unreachable(1)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        rig.pass_ms(100)
        assert not rig.ready()
        assert rig.opened[-1].port == rig.node(2).port
        rig.poll_until(rig.ready)


def test_nobody_left_to_ask_is_waited_out_not_spun_on(broker: EmbeddedBroker) -> None:
    backoff = {"reconnect.backoff.ms": 40, "reconnect.backoff.max.ms": 40}
    with Rig(broker, bootstrap=ONE, known=(), settings=backoff) as rig:
        broker.faults.unreachable(1)
        rig.metadata.due_in_ms = 0
        rig.poll_until(lambda: rig.metadata.failures)
        assert rig.client.least_loaded_node(rig.now_ms) is None
        began = time.monotonic()
        rig.poll(HOUR_MS)
        assert time.monotonic() - began > 0.035
