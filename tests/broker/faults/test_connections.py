"""Answers that come late, cut, torn or under a wrong number; brokers out of reach."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError, UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.faults.asking import connected, end_offset, metadata, metadata_request, produce, produced
from tests.broker.network.client import Client, request_frame
from tests.waiting import wait_until


def ask(client: Client, topic: str, correlation_id: int = 1) -> None:
    client.send(request_frame(ApiKey.PRODUCE, 9, produce(topic), correlation_id=correlation_id))


def is_silent(client: Client) -> bool:
    """For a moment. Its own wait is what the test is about: nothing tells of an answer that does not come."""
    client.socket.settimeout(0.05)
    try:
        client.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(10)
    return False


@pytest.mark.parametrize("stored", [0, 1])
def test_a_cut_before_stores_nothing_and_one_after_says_nothing(
    broker: EmbeddedBroker, client: Client, other_client: Client, topic: str, stored: int
) -> None:
    (broker.faults.cut_after if stored else broker.faults.cut_before)(ApiKey.PRODUCE)
    ask(client, topic)
    assert client.is_closed_by_broker()
    assert end_offset(other_client, topic) == stored


def test_a_truncated_frame_ends_too_early(broker: EmbeddedBroker, client: Client, other_client: Client, topic: str) -> None:
    broker.faults.truncate(ApiKey.PRODUCE, keep=5)
    ask(client, topic)
    with pytest.raises(EOFError, match=r"closed after 5 of \d\d bytes"):
        client.receive()

    assert end_offset(other_client, topic) == 1


def test_a_wrong_correlation_id_is_none_that_was_sent(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    broker.faults.wrong_correlation_id(ApiKey.PRODUCE)
    answers = []
    for correlation_id in (7, 8):
        ask(client, topic, correlation_id)
        answers.append(client.receive_response(ApiKey.PRODUCE, 9)[0])

    assert answers == [-8, 8]


def test_a_delayed_answer_comes_later(broker: EmbeddedBroker, client: Client, other_client: Client, topic: str) -> None:
    broker.faults.delay(ApiKey.PRODUCE, 200)
    begun = time.monotonic()
    ask(client, topic)

    assert client.receive_response(ApiKey.PRODUCE, 9)[0] == 1
    assert time.monotonic() - begun >= 0.2
    assert end_offset(other_client, topic) == 1


def test_no_thread_waits_for_a_delay(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    """More delayed requests than there are handlers."""
    delayed = [connected(broker) for _ in range(8)]
    fault = broker.faults.delay(ApiKey.PRODUCE, 3_600_000, times=8)
    for each in delayed:
        ask(each, topic)
    fault.wait(8)

    wait_until(lambda: end_offset(client, topic) == 8)
    for each in delayed:
        each.close()


def test_an_answer_that_a_broker_gives_while_it_stops_is_dropped_and_not_delayed(caplog: pytest.LogCaptureFixture) -> None:
    wanted = FetchTopic("t", partitions=(FetchPartition(0, partition_max_bytes=1_000),))
    with EmbeddedBroker() as broker, connected(broker) as client, connected(broker) as other_client:
        broker.create_topic("t")
        fault = broker.faults.delay(ApiKey.FETCH, 10)
        client.send(request_frame(ApiKey.FETCH, 4, FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(wanted,))))
        fault.wait()
        broker.faults.detach()
        produced(other_client, "t")

        assert client.is_closed_by_broker()
    assert caplog.records == []


def test_a_held_request_is_served_when_it_is_let_go(
    broker: EmbeddedBroker, client: Client, other_client: Client, topic: str
) -> None:
    with broker.faults.hold(ApiKey.PRODUCE) as held:
        ask(client, topic)
        held.wait()
        assert end_offset(other_client, topic) == 0

    assert client.receive_response(ApiKey.PRODUCE, 9)[0] == 1
    assert end_offset(other_client, topic) == 1


def test_a_held_request_meets_the_other_faults_when_it_is_let_go(
    broker: EmbeddedBroker, client: Client, other_client: Client, topic: str
) -> None:
    with broker.faults.hold(ApiKey.PRODUCE) as held:
        cut = broker.faults.cut_before(ApiKey.PRODUCE)
        watch = broker.faults.watch(ApiKey.PRODUCE)
        ask(client, topic)
        held.wait()

    assert client.is_closed_by_broker()
    assert end_offset(other_client, topic) == 0
    assert (cut.hits, watch.hits, broker.faults.seen(ApiKey.PRODUCE) >= 1) == (1, 1, True)


def test_a_held_answer_is_of_what_is_done(broker: EmbeddedBroker, client: Client, other_client: Client, topic: str) -> None:
    with broker.faults.hold(ApiKey.PRODUCE, applied=True) as held:
        ask(client, topic)
        held.wait()
        assert produced(other_client, topic, 0) == {0: 0}
        assert is_silent(client)

    assert client.receive_response(ApiKey.PRODUCE, 9)[0] == 1
    assert end_offset(other_client, topic) == 2


def test_an_unreachable_broker_refuses_connections_and_goes_on_to_lead(broker: EmbeddedBroker, topic: str) -> None:
    with connected(broker, 2) as second, connected(broker) as client, broker.faults.unreachable(1):
        assert client.is_closed_by_broker()
        with pytest.raises(ConnectionRefusedError):
            connected(broker)
        answer = metadata(second, [topic])
        assert {each.leader_id for each in answer.topics[0].partitions} == {1}
        assert [each.node_id for each in answer.brokers] == [1, 2]
    with connected(broker) as again:
        assert produced(again, topic, 0) == {0: 0}


def test_a_broker_that_was_killed_meanwhile_stays_away(broker: EmbeddedBroker) -> None:
    with broker.faults.unreachable(2):
        broker.kill(2)
    with pytest.raises(ConnectionRefusedError):
        connected(broker, 2)
    broker.restart(2)
    connected(broker, 2).close()


def test_a_black_hole_takes_requests_and_serves_them_when_it_ends(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    with broker.faults.unreachable(1, black_hole=True) as hole, connected(broker) as new:
        new.send(request_frame(ApiKey.METADATA, 9, metadata_request()))
        ask(client, topic)
        hole.wait(2)
        assert is_silent(client)
        assert is_silent(new)
    assert client.receive_response(ApiKey.PRODUCE, 9)[0] == 1
    assert end_offset(client, topic) == 1


def test_a_black_hole_swallows_answers_to_what_was_asked_before(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    """A long poll that ends meanwhile, because its partition has another leader."""
    asked = FetchTopic(topic, partitions=(FetchPartition(0, partition_max_bytes=1_000),))
    polls = broker.faults.watch(ApiKey.FETCH)
    client.send(request_frame(ApiKey.FETCH, 11, FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(asked,))))
    polls.wait()
    with broker.faults.unreachable(1, black_hole=True) as hole:
        broker.move_leader(topic, 0, 2)
        hole.wait()
        assert is_silent(client)

    assert client.receive_response(ApiKey.FETCH, 11)[0] == 1


def test_only_the_named_broker_is_a_black_hole(broker: EmbeddedBroker) -> None:
    with broker.faults.unreachable(1, black_hole=True), connected(broker, 2) as second:
        assert len(metadata(second).brokers) == 2


def test_only_a_broker_that_runs_can_become_unreachable(broker: EmbeddedBroker) -> None:
    with pytest.raises(OptionError, match="there is no broker 9"):
        broker.faults.unreachable(9)
    with pytest.raises(UsageError, match="the broker is not started"):
        EmbeddedBroker().faults.unreachable(1)


def test_a_broker_stops_while_requests_are_held(topic: str) -> None:
    with EmbeddedBroker() as own:
        own.create_topic("events")
        held = own.faults.hold(ApiKey.PRODUCE)
        with connected(own) as client:
            ask(client, "events")
            held.wait()
            own.stop()
            assert client.is_closed_by_broker()
        held.remove()

    assert held.is_over
