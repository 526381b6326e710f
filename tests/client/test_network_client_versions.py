"""NetworkClient and the versions that it and a broker have in common."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, PRODUCE, InitProducerIdRequest, ProduceRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.client.rig import REQUEST_TIMEOUT_MS, Rig, answer_bytes, errors, speaking, versions
from tests.waiting import HOUR_MS


def in_v0(answer: ApiVersionsResponse, times: int) -> Callable[[bytes], bytes]:
    """Puts this answer to ApiVersions in the place of the next ones that come."""
    left = iter(range(times))

    def change(came: bytes) -> bytes:
        (correlation_id,) = struct.unpack_from(">i", came, 4)
        return came if next(left, None) is None else answer_bytes(API_VERSIONS, answer, correlation_id, version=0)

    return change


def test_a_connection_begins_with_api_versions_in_the_newest_version_that_names_no_broker(broker: EmbeddedBroker) -> None:
    with Rig(broker, settings={"client.id": "me"}) as rig:
        held = broker.faults.hold(ApiKey.API_VERSIONS)
        connection = rig.connecting()
        ((header, body),) = connection.requests()
        assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, 4)
        assert header.client_id == "me"
        assert isinstance(body, ApiVersionsRequest)
        assert body.client_software_name == "spark-kafka-sink"
        assert not rig.ready()
        held.remove()
        rig.poll_until(rig.ready)


@pytest.mark.parametrize(("offered", "then"), [({18: (0, 3)}, 3), ({}, 0), ({3: (0, 9)}, 0)])
def test_a_broker_that_answers_in_v0_that_it_does_not_know_the_version_is_asked_again(
    broker: EmbeddedBroker, offered: dict[int, tuple[int, int]], then: int
) -> None:
    with Rig(broker) as rig:
        rig.change = in_v0(versions(offered, ErrorCode.UNSUPPORTED_VERSION), times=1)
        connection = rig.connected()
        again, _ = connection.requests()[1]
        assert (again.api_key, again.api_version) == (ApiKey.API_VERSIONS, then)


def test_a_broker_that_refuses_every_version_is_left_alone_until_its_back_off_is_over(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        rig.change = in_v0(versions({}, ErrorCode.UNSUPPORTED_VERSION), times=2)
        connection = rig.connecting()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert [header.api_version for header, _ in connection.requests()] == [4, 0]
        assert connection.is_closed
        assert not rig.ready()
        assert 0 < rig.client.poll_delay_ms(1, rig.now_ms) <= 60
        assert rig.metadata.requested == 1


def test_another_error_in_api_versions_ends_the_connection_with_its_name(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        refusal = ErrorCode.INVALID_REQUEST
        broker.faults.alter(ApiKey.API_VERSIONS, lambda _request, answer: replace(answer, error_code=refusal), times=None)
        rig.ready()
        rig.metadata.due_in_ms = 0
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        label, error = rig.metadata.failures[0]
        assert label == rig.label()
        assert "rejected ApiVersions: INVALID_REQUEST" in error


def test_the_version_is_the_highest_that_broker_client_and_caller_allow(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.alter(ApiKey.API_VERSIONS, speaking({ApiKey.PRODUCE: (0, 9)}))
        connection = rig.connected()
        asked: list[int] = []

        def body(version: int) -> ProduceRequest:
            asked.append(version)
            return ProduceRequest()

        for limit in (None, 7):
            rig.client.send(1, PRODUCE, body, rig.now_ms, max_version=limit)
            rig.poll()
            header, _ = connection.requests()[-1]
            assert header.api_version == asked[-1]
        assert asked == [9, 7]


def test_having_no_version_in_common_is_a_response_and_the_connection_goes_on(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.alter(ApiKey.API_VERSIONS, speaking({ApiKey.PRODUCE: (0, 2), ApiKey.INIT_PRODUCER_ID: (0, 0)}))
        rig.connected()
        rig.client.send(1, PRODUCE, ProduceRequest(), rig.now_ms, tag="old")
        (response,) = rig.poll(HOUR_MS)
        assert isinstance(response.error, UnsupportedVersionError)
        assert (response.tag, response.api, response.body) == ("old", PRODUCE, None)
        assert rig.client.in_flight_count() == 0
        rig.send()
        assert errors(rig.responses()) == {None}


def test_a_message_that_the_version_cannot_carry_is_a_response_too(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.alter(ApiKey.API_VERSIONS, speaking({ApiKey.INIT_PRODUCER_ID: (0, 2)}))
        rig.connected()
        rig.client.send(1, INIT_PRODUCER_ID, InitProducerIdRequest(producer_id=7, producer_epoch=1), rig.now_ms)
        assert errors(rig.responses()) == {UnsupportedVersionError}


def test_api_versions_that_are_not_answered_in_time_end_the_connection(broker: EmbeddedBroker) -> None:
    with Rig(broker) as rig:
        broker.faults.hold(ApiKey.API_VERSIONS)
        connection = rig.connecting()
        rig.pass_ms(REQUEST_TIMEOUT_MS)
        assert rig.poll() == []
        assert rig.client.is_unavailable(1)
        assert connection.is_closed
