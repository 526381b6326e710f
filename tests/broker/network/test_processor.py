"""Processor: what goes wrong on one connection stays there, and the loop goes on whatever happens in it."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest

from spark_kafka_sink.broker.network import processor as processor_module
from spark_kafka_sink.broker.network.request import DecodedRequest, decode
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.network.channel import PlainChannel
from spark_kafka_sink.network.selector import PollResult, Selector
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.groups import HeartbeatResponse
from tests.broker.network.client import Client
from tests.broker.network.held import Held, heartbeat_frame
from tests.broker.network.servers import Server
from tests.waiting import wait_until


def one_processor() -> Server:
    return Server({ApiKey.HEARTBEAT: Held()}, num_network_threads=1)


def test_a_defect_in_reading_a_request_closes_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(frame: memoryview, served: Mapping[int, AnyApi]) -> DecodedRequest:
        if bytes(frame[:2]) == b"\0\x0c":  # a Heartbeat
            raise ZeroDivisionError("a defect")
        return decode(frame, served)

    monkeypatch.setattr(processor_module, "decode", broken)
    with one_processor() as server:
        client, other = server.client(), server.client()
        client.send(heartbeat_frame(1))
        assert client.is_closed_by_broker()
        assert other.api_versions().error_code == 0
        assert server.sockets.connection_quotas.count() == 1
    assert "a defect" in caplog.text


def test_the_loop_goes_on_after_a_defect_in_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    poll, failures = Selector.poll, [ZeroDivisionError("a defect"), OSError("no more epoll")]

    def broken(selector: Selector, timeout_ms: int) -> PollResult:
        if failures:
            raise failures.pop()
        return poll(selector, timeout_ms)

    monkeypatch.setattr(Selector, "poll", broken)
    with one_processor() as server:
        assert server.client().api_versions().error_code == 0
    assert "a defect" in caplog.text


def test_an_answer_that_no_frame_can_hold_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = Selector.send

    def refusing(selector: Selector, connection_id: int, buffers: list[bytes], *, announced: int | None = None) -> None:
        if sum(map(len, buffers)) < 20:  # a Heartbeat's answer
            raise UsageError("a message of 3,000,000,000 bytes does not fit in a frame")
        send(selector, connection_id, buffers, announced=announced)

    monkeypatch.setattr(Selector, "send", refusing)
    with Server({ApiKey.HEARTBEAT: lambda _services, _request: HeartbeatResponse()}, num_network_threads=1) as server:
        client, other = server.client(), server.client()
        client.send(heartbeat_frame(1))
        assert client.is_closed_by_broker()
        assert other.api_versions().error_code == 0
    assert "does not fit in a frame" in caplog.text


def test_a_connection_that_is_gone_before_it_is_looked_at_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_channel: PlainChannel, _sock: socket.socket, _peer: str) -> None:
        raise OSError("the connection is gone")

    with one_processor() as server:
        with monkeypatch.context() as patched:
            patched.setattr(PlainChannel, "__init__", gone)
            assert server.client().is_closed_by_broker()
            wait_until(lambda: server.sockets.connection_quotas.count() == 0)
        assert server.client().api_versions().error_code == 0


def test_idle_connections_are_closed_and_the_others_not() -> None:
    with Server(num_network_threads=1, connections_max_idle_ms=300) as server:
        idle, busy = server.client(), server.client()
        idle.api_versions()
        idle.socket.setblocking(False)
        while not closed(idle):
            assert busy.api_versions().error_code == 0
        assert busy.api_versions().error_code == 0
        wait_until(lambda: server.sockets.connection_quotas.count() == 1)


def closed(client: Client) -> bool:
    try:
        return client.socket.recv(1) == b""
    except BlockingIOError:
        return False


def test_an_answer_after_the_stop_goes_nowhere() -> None:
    held = Held()
    with Server({ApiKey.HEARTBEAT: held}) as server:
        client = server.client()
        client.send(heartbeat_frame(1))
        held.wait_for(1)
        assert server.sockets.stop()
        held.answer(0)
        assert client.is_closed_by_broker()
