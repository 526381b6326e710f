"""NetworkClient and the versions that it and a broker have in common."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersionsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from spark_kafka_sink.protocol.produce import (
    PRODUCE,
    ProduceRequest,
)
from tests.client.rig import REQUEST_TIMEOUT_MS, Rig, answer, errors, send
from tests.client.scripted_broker import ScriptedBroker, versions


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


def test_api_versions_that_are_not_answered_in_time_end_the_connection() -> None:
    with ScriptedBroker() as broker, Rig(broker) as rig:
        connection = rig.connecting(broker)
        rig.pass_ms(REQUEST_TIMEOUT_MS)
        assert rig.poll() == []
        assert rig.client.is_unavailable(1)
        assert connection.is_closed_by_client()
