"""When the known brokers are of no use: bootstrap.servers again (KIP-899, KIP-1102), or not, as metadata.recovery.strategy says.

In each test `two` is the only bootstrap server, and `one` the only broker that the last answer named.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.errors import DisconnectedError
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.metadata import MetadataResponse
from tests.client.rig import NOTHING_DUE, Rig, agreed, answered, asked, called, cluster, send
from tests.client.scripted_broker import Connection, ScriptedBroker

NONE: Mapping[str, object] = {"metadata.recovery.strategy": "none"}
TRIGGER: Mapping[str, object] = {"metadata.recovery.rebootstrap.trigger.ms": 10_000}  # sooner than request.timeout.ms
BOOTSTRAP = -1
REFUSAL = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)


@pytest.fixture
def one() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def two() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


def begun(one: ScriptedBroker, two: ScriptedBroker, settings: Mapping[str, object] = TRIGGER) -> tuple[Rig, Connection]:
    """Connected to `one`, with metadata due and nothing asked yet."""
    rig = Rig(two, settings=settings)
    rig.metadata.known = {1: Node(1, one.host, one.port)}
    connection = rig.connected(one)
    rig.metadata.due_in_ms = 0
    return rig, connection


def refuse(rig: Rig, connection: Connection, response: MetadataResponse) -> None:
    """Answers a request for metadata with what is none."""
    header, _ = rig.receive(connection)
    before = len(rig.metadata.updates)
    connection.answer(header, response)
    rig.poll_until(lambda: len(rig.metadata.updates) > before)


# Known brokers that fail


def test_when_all_known_brokers_are_gone_the_bootstrap_servers_are_asked_again(one: ScriptedBroker, two: ScriptedBroker) -> None:
    """KIP-899."""
    with Rig(two) as rig:
        rig.metadata.known = {1: Node(1, one.host, one.port)}
        connection = rig.connected(one)
        one.stop_listening()
        connection.close()
        rig.metadata.due_in_ms = 0
        assert called(rig, two) is two
        agreed(rig, two.connections[0])
        answered(rig, two.connections[0], cluster(two))
        assert rig.metadata.known == {1: Node(1, two.host, two.port)}


def test_brokers_that_are_there_and_never_answer_lead_back_to_the_bootstrap_servers(
    one: ScriptedBroker, two: ScriptedBroker
) -> None:
    """KIP-1102: there is always one that can be connected to, and none helps."""
    with Rig(two) as rig:
        rig.metadata.known = {1: Node(1, one.host, one.port)}
        connection = rig.connected(one)
        rig.metadata.due_in_ms = 0
        asked(rig, connection)
        rig.pass_ms(30_000)
        rig.poll_until(lambda: rig.metadata.failures)
        rig.pass_ms(1_000)
        assert called(rig, one, two) is two


def test_after_an_answer_the_bootstrap_servers_are_out_again(one: ScriptedBroker, two: ScriptedBroker) -> None:
    with Rig(two) as rig:
        rig.metadata.known = {1: Node(1, one.host, one.port)}
        rig.metadata.due_in_ms = 0
        one_connection = rig.connecting(one)
        one_connection.reset()
        rig.poll_until(lambda: rig.metadata.failures)
        assert called(rig, two) is two
        agreed(rig, two.connections[0])
        answered(rig, two.connections[0], cluster(one))
        assert rig.ready(BOOTSTRAP)
        rig.pass_ms(1_000)
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {1}


def test_an_answer_of_no_use_counts_as_a_failure(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two)
    with rig:
        refuse(rig, connection, MetadataResponse())
        rig.metadata.due_in_ms = NOTHING_DUE
        connection.reset()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.metadata.failures == []
        rig.pass_ms(1_000)
        assert rig.client.least_loaded_node(rig.now_ms) == BOOTSTRAP


def test_with_strategy_none_only_known_brokers_are_asked(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two, {**NONE, **TRIGGER})
    with rig:
        one.stop_listening()
        connection.close()
        for failures in range(1, 8):
            rig.poll_until(lambda expected=failures: len(rig.metadata.failures) >= expected)  # type: ignore[misc]
            rig.pass_ms(11_000)
        assert not two.has_caller()
        assert {label for label, _ in rig.metadata.failures} == {f"broker 1 ({one.server})"}
        why = rig.client.why_not_ready(1)
        assert why is not None
        assert why.endswith("(bootstrap.servers are not asked again: metadata.recovery.strategy is none)")


def test_with_strategy_none_bootstrap_servers_are_asked_first_of_all(one: ScriptedBroker) -> None:
    with Rig(one, known=False, settings=NONE) as rig:
        rig.metadata.due_in_ms = 0
        assert called(rig, one) is one
        agreed(rig, one.connections[0])
        answered(rig, one.connections[0], cluster(one))


def test_with_strategy_none_one_lost_connection_is_no_reason_to_speak_of_bootstrap_servers(
    one: ScriptedBroker, two: ScriptedBroker
) -> None:
    with Rig(two, settings=NONE) as rig:
        rig.metadata.known = {1: Node(1, one.host, one.port)}
        rig.connected(one).reset()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert "bootstrap" not in (rig.client.why_not_ready(1) or "bootstrap")


def test_where_bootstrap_servers_are_asked_again_no_reason_speaks_of_them(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two)
    with rig:
        connection.reset()
        rig.poll_until(lambda: rig.metadata.failures)
        assert "bootstrap" not in (rig.client.why_not_ready(1) or "bootstrap")


# metadata.recovery.rebootstrap.trigger.ms


def test_after_the_trigger_time_without_metadata_everything_begins_again(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two)
    with rig:
        send(rig, "produce")
        connection.receive()
        asked(rig, connection)
        rig.pass_ms(10_000)
        assert rig.poll() == []
        rig.pass_ms(1)
        (response,) = rig.responses()
        assert response.tag == "produce"
        assert isinstance(response.error, DisconnectedError)
        assert response.error.message == "begun again with bootstrap.servers: no metadata for 10,000 ms"
        assert connection.is_closed_by_client()
        assert rig.metadata.known == {}
        assert called(rig, one, two) is two
        agreed(rig, two.connections[0])
        answered(rig, two.connections[0], cluster(two))
        assert rig.metadata.known == {1: Node(1, two.host, two.port)}


def test_an_answer_in_time_starts_the_trigger_time_anew(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two)
    with rig:
        for _ in range(3):
            rig.metadata.due_in_ms = 0
            rig.poll()
            rig.pass_ms(9_000)
            answered(rig, connection, cluster(one))
        rig.pass_ms(9_000)
        rig.metadata.due_in_ms = 0
        asked(rig, connection)
        rig.pass_ms(9_000)
        rig.poll()
        assert rig.metadata.known == {1: Node(1, one.host, one.port)}


def test_bootstrap_servers_that_give_no_metadata_either_get_as_long_before_all_begins_again(
    one: ScriptedBroker, two: ScriptedBroker
) -> None:
    rig, connection = begun(one, two)
    with rig:
        asked(rig, connection)
        rig.pass_ms(10_001)
        assert called(rig, two) is two
        agreed(rig, two.connections[0])
        asked(rig, two.connections[0])
        rig.pass_ms(10_000)
        rig.poll()
        assert not two.connections[0].has_bytes()
        rig.pass_ms(1)
        rig.poll()
        assert two.connections[0].is_closed_by_client()
        rig.pass_ms(1_000)
        assert called(rig, two) is two


def test_a_poll_does_not_sleep_past_the_trigger_time(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two, {"metadata.recovery.rebootstrap.trigger.ms": 30})
    with rig:
        asked(rig, connection)
        began = time.monotonic()
        rig.poll(20_000)
        assert 0.025 < time.monotonic() - began < 5


def test_with_strategy_none_the_trigger_time_means_nothing(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two, {**NONE, **TRIGGER})
    with rig:
        asked(rig, connection)
        rig.pass_ms(20_000)
        rig.poll(10)
        assert rig.client.in_flight_count(1) == 1
        assert rig.metadata.known == {1: Node(1, one.host, one.port)}


# REBOOTSTRAP_REQUIRED


def test_a_broker_that_says_rebootstrap_required_is_obeyed_at_once(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two)
    with rig:
        header, _ = rig.receive(connection)
        send(rig, "produce")
        connection.answer(header, REFUSAL)
        (response,) = rig.responses()
        assert str(response.error) == "[DISCONNECTED] begun again with bootstrap.servers: a broker asked for it"
        assert connection.is_closed_by_client()
        assert called(rig, one, two) is two
        agreed(rig, two.connections[0])
        answered(rig, two.connections[0], cluster(two))
        rig.poll()
        assert rig.metadata.known == {1: Node(1, two.host, two.port)}


def test_with_strategy_none_rebootstrap_required_is_a_failure_and_no_more(one: ScriptedBroker, two: ScriptedBroker) -> None:
    rig, connection = begun(one, two, NONE)
    with rig:
        refuse(rig, connection, REFUSAL)
        asked(rig, connection)
        assert rig.metadata.known == {1: Node(1, one.host, one.port)}
        assert not two.has_caller()
