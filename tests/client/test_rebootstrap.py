"""When the known brokers are of no use: bootstrap.servers again (KIP-899, KIP-1102), or not, as metadata.recovery.strategy says.

In each test broker 2 is the only bootstrap server, and broker 1 the only one that the last answer named.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DisconnectedError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import METADATA, MetadataResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.client.rig import NO_SETTINGS, Rig, WatchedChannel, answer_bytes, naming, speaking
from tests.waiting import HOUR_MS

NONE: Mapping[str, object] = {"metadata.recovery.strategy": "none"}
TRIGGER: Mapping[str, object] = {"metadata.recovery.rebootstrap.trigger.ms": 10_000}  # sooner than request.timeout.ms
BOOTSTRAP = -1
REFUSAL = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)


def rig_of(broker: EmbeddedBroker, settings: Mapping[str, object] = NO_SETTINGS) -> Rig:
    return Rig(broker, bootstrap=(2,), known=(1,), settings=settings)


def begun(broker: EmbeddedBroker, settings: Mapping[str, object] = TRIGGER) -> tuple[Rig, WatchedChannel]:
    """Connected to broker 1, with metadata due and nothing asked yet."""
    rig = rig_of(broker, settings)
    connection = rig.connected()
    rig.metadata.due_in_ms = 0
    return rig, connection


# Known brokers that fail


def test_when_all_known_brokers_are_gone_the_bootstrap_servers_are_asked_again(broker: EmbeddedBroker) -> None:
    """KIP-899."""
    with rig_of(broker) as rig:
        rig.connected()
        broker.faults.unreachable(1)
        broker.faults.alter(ApiKey.METADATA, naming(2))
        rig.metadata.due_in_ms = 0
        assert rig.called(2) == 2
        rig.updated()
        assert rig.metadata.known == {2: rig.node(2)}


def test_brokers_that_are_there_and_never_answer_lead_back_to_the_bootstrap_servers(broker: EmbeddedBroker) -> None:
    """KIP-1102: there is always one that can be connected to, and none helps."""
    rig, _ = begun(broker, NO_SETTINGS)
    with rig:
        rig.asked()
        rig.pass_ms(30_000)
        rig.poll_until(lambda: rig.metadata.failures)
        rig.pass_ms(1_000)
        assert rig.called(1, 2) == 2


def test_after_an_answer_the_bootstrap_servers_are_out_again(broker: EmbeddedBroker) -> None:
    with rig_of(broker) as rig:
        broker.faults.cut_before(ApiKey.API_VERSIONS, broker=1)
        broker.faults.alter(ApiKey.METADATA, naming(1))
        rig.metadata.due_in_ms = 0
        rig.poll_until(lambda: rig.metadata.failures)
        assert rig.called(2) == 2
        rig.updated()
        assert rig.ready(BOOTSTRAP)
        rig.pass_ms(1_000)
        assert {rig.client.least_loaded_node(rig.now_ms) for _ in range(20)} == {1}


def test_with_strategy_none_only_known_brokers_are_asked(broker: EmbeddedBroker) -> None:
    rig, _ = begun(broker, {**NONE, **TRIGGER})
    with rig:
        broker.faults.unreachable(1)
        for failures in range(1, 8):
            rig.poll_until(lambda expected=failures: len(rig.metadata.failures) >= expected)  # type: ignore[misc]
            rig.pass_ms(11_000)
        assert not rig.has_called(2)
        assert {label for label, _ in rig.metadata.failures} == {rig.label()}
        why = rig.client.why_not_ready(1)
        assert why is not None
        assert why.endswith("(bootstrap.servers are not asked again: metadata.recovery.strategy is none)")


def test_with_strategy_none_one_lost_connection_is_no_reason_to_speak_of_bootstrap_servers(broker: EmbeddedBroker) -> None:
    with rig_of(broker, NONE) as rig:
        rig.connected()
        broker.faults.unreachable(1)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert "bootstrap" not in (rig.client.why_not_ready(1) or "bootstrap")


def test_where_bootstrap_servers_are_asked_again_no_reason_speaks_of_them(broker: EmbeddedBroker) -> None:
    rig, _ = begun(broker)
    with rig:
        broker.faults.unreachable(1)
        rig.poll_until(lambda: rig.metadata.failures)
        assert "bootstrap" not in (rig.client.why_not_ready(1) or "bootstrap")


# metadata.recovery.rebootstrap.trigger.ms


@pytest.mark.fault("metadata", "every bootstrap or known broker replaced")
def test_after_the_trigger_time_without_metadata_everything_begins_again(broker: EmbeddedBroker) -> None:
    rig, connection = begun(broker)
    with rig:
        broker.faults.hold(ApiKey.INIT_PRODUCER_ID)
        rig.send("produce")
        rig.poll_until(lambda: len(connection.requests()) == 3)  # of versions, this one, and of metadata
        rig.pass_ms(10_000)
        assert rig.poll() == []
        rig.pass_ms(1)
        (response,) = rig.responses()
        assert response.tag == "produce"
        assert isinstance(response.error, DisconnectedError)
        assert response.error.message == "restarted with bootstrap.servers: no metadata for 10,000 ms"
        assert connection.is_closed
        assert rig.metadata.known == {}
        broker.faults.alter(ApiKey.METADATA, naming(2))
        assert rig.called(1, 2) == 2
        rig.updated()
        assert rig.metadata.known == {2: rig.node(2)}


def test_an_answer_in_time_starts_the_trigger_time_anew(broker: EmbeddedBroker) -> None:
    rig, _ = begun(broker)
    with rig:
        for _ in range(3):
            rig.metadata.due_in_ms = 0
            held = rig.asked()
            rig.pass_ms(9_000)
            held.remove()
            rig.updated()
        rig.pass_ms(9_000)
        rig.metadata.due_in_ms = 0
        rig.asked()
        rig.pass_ms(9_000)
        rig.poll()
        assert rig.metadata.known == {1: rig.node(1), 2: rig.node(2)}


def test_bootstrap_servers_that_give_no_metadata_either_get_as_long_before_all_begins_again(broker: EmbeddedBroker) -> None:
    rig, _ = begun(broker)
    with rig:
        rig.asked(1)
        rig.pass_ms(10_001)
        assert rig.called(2) == 2
        rig.asked(2)
        connection = rig.opened[-1]
        rig.pass_ms(10_000)
        rig.poll()
        assert rig.client.in_flight_count(BOOTSTRAP) == 1
        rig.pass_ms(1)
        rig.poll()
        assert connection.is_closed
        rig.pass_ms(1_000)
        assert rig.called(2) == 2


def test_a_poll_does_not_sleep_past_the_trigger_time(broker: EmbeddedBroker) -> None:
    patient = {"request.timeout.ms": HOUR_MS, "delivery.timeout.ms": 2 * HOUR_MS}
    rig, _ = begun(broker, {"metadata.recovery.rebootstrap.trigger.ms": 30, **patient})
    with rig:
        rig.asked()
        began = time.monotonic()
        rig.poll(HOUR_MS)
        assert time.monotonic() - began > 0.025


# REBOOTSTRAP_REQUIRED


@pytest.mark.fault("metadata", "every bootstrap or known broker replaced")
def test_a_broker_that_says_rebootstrap_required_is_obeyed_at_once(broker: EmbeddedBroker) -> None:
    rig, connection = begun(broker)
    with rig:
        held = rig.asked()
        rig.send("produce")
        connection.change = lambda _: answer_bytes(METADATA, REFUSAL, connection.requests()[1][0].correlation_id)
        held.remove()
        (response,) = rig.responses()
        assert str(response.error) == "[DISCONNECTED] restarted with bootstrap.servers: a broker asked for it"
        assert connection.is_closed
        broker.faults.alter(ApiKey.METADATA, naming(2))
        assert rig.called(1, 2) == 2
        rig.updated()
        rig.poll()
        assert rig.metadata.known == {2: rig.node(2)}


def test_with_strategy_none_rebootstrap_required_is_a_failure_and_no_more(broker: EmbeddedBroker) -> None:
    rig, _ = begun(broker, NONE)
    with rig:
        broker.faults.alter(ApiKey.METADATA, lambda _request, _answer: REFUSAL)
        rig.updated()
        rig.asked()
        assert rig.metadata.known == {1: rig.node(1)}
        assert not rig.has_called(2)


# An address that leads to another cluster


def test_of_another_cluster_only_the_connection_that_said_so_is_kept(broker: EmbeddedBroker) -> None:
    """The others may still lead to the cluster of before, whose producer id would be taken for one of this cluster."""
    with Rig(broker) as rig:
        rig.connected(2)
        kept = rig.connected(1)
        rig.metadata.due_in_ms = 0
        rig.updated()
        held = broker.faults.hold(ApiKey.INIT_PRODUCER_ID, broker=2)
        rig.send("of before", node_id=2)
        rig.poll_until(lambda: held.hits)
        broker.faults.alter(ApiKey.METADATA, lambda _request, answer: replace(answer, cluster_id="another"))
        rig.metadata.due_in_ms = 0
        (response,) = rig.responses()
        assert response.tag == "of before"
        assert isinstance(response.error, DisconnectedError)
        assert response.error.message == f"{rig.label()} belongs to cluster another now"
        assert [channel for channel in rig.opened if not channel.is_closed] == [kept]
        held.remove()


def test_a_broker_that_is_back_without_a_version_of_metadata_loses_its_connection(broker: EmbeddedBroker) -> None:
    """Nothing tells then whether the address still leads to the same cluster."""
    with Rig(broker) as rig:
        first = rig.connected(1)
        rig.metadata.due_in_ms = 0
        rig.updated()
        broker.faults.alter(ApiKey.API_VERSIONS, speaking({ApiKey.METADATA: (99, 99)}), times=None)
        broker.kill(1)
        rig.poll_until(lambda: first.is_closed)
        broker.restart(1)
        rig.pass_ms(60_000)
        rig.ready(1)
        rig.poll_until(lambda: rig.opened[-1] is not first and rig.opened[-1].is_closed)
        assert not rig.ready(1)
