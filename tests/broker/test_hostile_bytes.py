"""Bytes that no client sends close their own connection, with a line in the log, and harm nobody else."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsResponse, MetadataRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.hostile_frames import HOSTILE
from tests.broker.network.client import Client, api_versions_frame, framed, request_frame
from tests.broker.unharmed import MEGABYTE, connections, memory_stays, nothing_escapes, threads_stay
from tests.every import every
from tests.waiting import wait_until

LIMIT = 100 * MEGABYTE


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    # One Processor: whoever shares it with a hostile connection shares its thread.
    with EmbeddedBroker(config=BrokerConfig(num_network_threads=1)) as broker:
        yield broker


@contextmanager
def bystander(broker: EmbeddedBroker) -> Iterator[Client]:
    """Another connection, which was served before and is served after."""
    with nothing_escapes(), threads_stay(), Client(port(broker)) as client:
        before = client.api_versions()
        yield client
        assert client.api_versions() == before


def port(broker: EmbeddedBroker) -> int:
    return broker.server(1).port


def header(key: int, version: int) -> bytes:
    """Of a request without a client id, in the notation before tagged fields."""
    return struct.pack(">hhih", key, version, 1, -1)


METADATA_V9 = request_frame(ApiKey.METADATA, 9, MetadataRequest(()))[4:]

REFUSED = {
    "a negative size": struct.pack(">i", -1),
    "the most negative size": struct.pack(">i", -(2**31)),
    "a size of zero": struct.pack(">i", 0),
    "a size over the limit": struct.pack(">i", LIMIT + 1),
    "the largest size": struct.pack(">i", 2**31 - 1),
    "an HTTP request": b"GET /index.html HTTP/1.1\r\nHost: broker\r\n\r\n",
    "an HTTP response": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a TLS alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "a TLS handshake": bytes.fromhex("16030100c8010000c40303"),
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an empty message": framed(b"\0"),
    "half a header": framed(b"\0\x12\0\3"),
    "an unknown API": framed(header(999, 0)),
    "a negative API": framed(header(-1, 0)),
    "an API of controllers": framed(header(4, 7)),
    "an unknown version": framed(header(ApiKey.METADATA, 99)),
    "a negative version": framed(header(ApiKey.METADATA, -1)),
    "a version that Kafka 4 dropped": framed(header(ApiKey.PRODUCE, 2)),
    "noise": framed(bytes(range(256))),
    "a message that ends too early": framed(METADATA_V9[:-1]),
    "a null where an array must be": framed(header(ApiKey.CREATE_TOPICS, 4) + struct.pack(">i", -1)),
    "a negative array length": framed(header(ApiKey.METADATA, 8) + struct.pack(">i", -2)),
    "a huge array length": framed(header(ApiKey.METADATA, 8) + struct.pack(">i", 2**31 - 1)),
    "a huge varint length": framed(METADATA_V9[:-4] + b"\xff\xff\xff\xff\x0f"),
    "a varint that does not end": framed(METADATA_V9[:-4] + b"\xff" * 9),
    "a client id that is no UTF-8": framed(struct.pack(">hhih", ApiKey.METADATA, 8, 1, 2) + b"\xff\xfe\0\0\0\0\0\0\0"),
}


@pytest.mark.fault("hostile bytes", "HTTP or a TLS alert instead of Kafka")
@pytest.mark.fault("hostile bytes", "frame size negative, zero or over the limit")
@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_it_closes_its_own_connection_with_a_line_in_the_log(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    # A broker of its own: of many such connections only the first have a line each.
    with EmbeddedBroker(config=BrokerConfig(num_network_threads=1)) as broker, bystander(broker), Client(port(broker)) as hostile:
        hostile.send(data)
        assert hostile.is_closed_by_broker()
        name = "{}:{}".format(*hostile.socket.getsockname())
    (line,) = [record for record in caplog.records if name in record.getMessage()]

    assert line.levelno == logging.WARNING


@every("data", REFUSED.values())
def test_what_came_before_it_is_answered(broker: EmbeddedBroker, data: bytes) -> None:
    with Client(port(broker)) as hostile:
        hostile.send(api_versions_frame(5) + data)
        assert hostile.receive_response(ApiKey.API_VERSIONS, 3)[0] == 5
        assert hostile.is_closed_by_broker()


def test_bytes_behind_a_message_are_passed_over_as_kafka_does(broker: EmbeddedBroker) -> None:
    with bystander(broker), Client(port(broker)) as client:
        client.send(framed(METADATA_V9 + b"librdkafka sends some") + api_versions_frame(9))
        assert client.receive_response(ApiKey.METADATA, 9)[0] == 1
        assert client.receive_response(ApiKey.API_VERSIONS, 3)[0] == 9


@pytest.mark.fault("hostile bytes", "unknown API key or version")
@every("version", [5, 99, 2**15 - 1, -1])
def test_only_api_versions_answers_an_unknown_version(broker: EmbeddedBroker, version: int) -> None:
    with Client(port(broker)) as client:
        client.send(framed(header(ApiKey.API_VERSIONS, version) + b"whatever a newer version may have"))
        correlation_id, answer = client.receive_response(ApiKey.API_VERSIONS, 0)
        assert isinstance(answer, ApiVersionsResponse)
        known = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
        assert (correlation_id, answer.error_code) == (1, ErrorCode.UNSUPPORTED_VERSION)
        assert known == [(ApiKey.API_VERSIONS, 0, 4)]
        # And goes on.
        assert client.api_versions().error_code == 0


@pytest.mark.fault("hostile bytes", "truncated frame")
@every("sent", range(1, len(api_versions_frame())))
def test_a_frame_cut_anywhere_ends_with_its_connection(broker: EmbeddedBroker, sent: int) -> None:
    with bystander(broker), Client(port(broker)) as hostile:
        hostile.send(api_versions_frame()[:sent])
        hostile.socket.shutdown(socket.SHUT_WR)
        assert hostile.is_closed_by_broker()


@pytest.mark.fault("hostile bytes", "one byte at a time")
def test_a_frame_that_comes_a_byte_at_a_time_is_answered_and_keeps_nobody_waiting(broker: EmbeddedBroker) -> None:
    with bystander(broker) as other, Client(port(broker)) as slow:
        for byte in api_versions_frame(8):
            slow.send(bytes([byte]))
            other.api_versions()
        assert slow.receive_response(ApiKey.API_VERSIONS, 3)[0] == 8


def test_many_that_announce_large_frames_take_no_memory_for_them(broker: EmbeddedBroker) -> None:
    with bystander(broker), memory_stays(40 * MEGABYTE), ExitStack() as closing:
        for _ in range(200):
            hostile = closing.enter_context(Client(port(broker)))
            hostile.send(struct.pack(">i", LIMIT) + b"and then little of it")
        wait_until(lambda: connections(broker) == 201)


def test_a_client_that_never_reads_its_answers_keeps_nobody_waiting(broker: EmbeddedBroker) -> None:
    with bystander(broker) as other, Client(port(broker), receive_buffer=5_000) as hostile:
        hostile.socket.setblocking(False)
        frames = api_versions_frame() * 5_000
        try:
            while frames:
                frames = frames[hostile.socket.send(frames) :]
        except BlockingIOError:
            pass  # nobody reads it any more: that is what it did to the broker
        for _ in range(50):
            other.api_versions()


@pytest.mark.fault("hostile bytes", "negative or huge lengths of arrays and varints")
@every("number", HOSTILE)
def test_a_hostile_number_anywhere_in_a_request_closes_it_or_is_answered(broker: EmbeddedBroker, number: bytes) -> None:
    with bystander(broker):
        for at in range(len(METADATA_V9)):
            with Client(port(broker)) as hostile:
                hostile.send(framed(METADATA_V9[:at] + number + METADATA_V9[at + 1 :]))
                try:
                    hostile.receive()
                except (EOFError, ConnectionResetError):
                    pass  # closed
