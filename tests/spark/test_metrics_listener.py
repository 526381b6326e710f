from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark import metrics as module
from spark_kafka_sink.spark.messages import report_to_bytes
from spark_kafka_sink.spark.metrics import MAX_MESSAGE_BYTES, CommitListener, ListenerAddress, send_refusal, send_report
from tests.spark.reports import reports

REPORT = DeliveryReport(records=5)


@contextmanager
def listening() -> Iterator[tuple[ListenerAddress, list[DeliveryReport]]]:
    with listening_to_all() as (address, received, _):
        yield address, received


@contextmanager
def listening_to_all() -> Iterator[tuple[ListenerAddress, list[DeliveryReport], list[None]]]:
    """The third counts refusals."""
    received: list[DeliveryReport] = []
    refusals: list[None] = []
    listener = CommitListener(received.append, lambda: refusals.append(None))
    try:
        yield listener.address, received, refusals
    finally:
        listener.stop()


def send_raw(address: ListenerAddress, data: bytes) -> bytes:
    """What the listener answers to these bytes: nothing, when it refuses them."""
    with socket.create_connection(("127.0.0.1", address.port), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1)
        except OSError:
            return b""


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=20)
@given(reports)
def test_a_report_is_there_once_sending_has_returned(report: DeliveryReport) -> None:
    with listening() as (address, received):
        send_report(address, report)
        assert received == [report]


def test_a_report_with_the_wrong_token_is_refused_and_the_next_is_taken() -> None:
    with listening() as (address, received):
        with pytest.raises(OSError):
            send_report(replace(address, token="0" * 32), REPORT)
        send_report(address, REPORT)
        assert received == [REPORT]


def test_a_refusal_is_there_once_sending_has_returned_and_is_no_report() -> None:
    with listening_to_all() as (address, received, refusals):
        send_refusal(address)
        assert (received, len(refusals)) == ([], 1)
        send_report(address, REPORT)
        assert (received, len(refusals)) == ([REPORT], 1)


def test_a_refusal_with_the_wrong_token_is_refused() -> None:
    with listening_to_all() as (address, _, refusals):
        with pytest.raises(OSError):
            send_refusal(replace(address, token="0" * 32))
        assert refusals == []


def test_a_refusal_comes_without_content() -> None:
    with listening_to_all() as (address, received, refusals):
        for content in (b"R", b"{}", b"\0" * 1000):
            text = address.token.encode() + b"R" + content
            assert send_raw(address, struct.pack(">I", len(text)) + text) == b""
        send_refusal(address)
        assert (received, len(refusals)) == ([], 1)


@pytest.mark.parametrize("kind", [b"", b"c", b"r", b"\0", b"\xff", b"{"])
def test_a_kind_that_is_not_known_is_refused_whatever_follows(kind: bytes) -> None:
    with listening_to_all() as (address, received, refusals):
        for content in (b"", report_to_bytes(REPORT)):
            text = address.token.encode() + kind + content
            assert send_raw(address, struct.pack(">I", len(text)) + text) == b""
        send_report(address, REPORT)
        assert (received, refusals) == ([REPORT], [])


@pytest.mark.parametrize("length", [0, 31, 32, MAX_MESSAGE_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_anything_is_read(length: int) -> None:
    with listening() as (address, received):
        with socket.create_connection(("127.0.0.1", address.port)) as connection:
            # Less than what the listener would wait for the rest of a message that it takes.
            connection.settimeout(module.RECEIVE_TIMEOUT_S / 2)
            connection.sendall(struct.pack(">I", length) + address.token.encode())
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        send_report(address, REPORT)
        assert received == [REPORT]


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[1]", b"\xff\xff", b'{"records": "x"}', b"cos\nsystem\n(S'true'\ntR."])
def test_anything_but_a_report_is_refused_even_with_the_token(body: bytes) -> None:
    with listening() as (address, received):
        text = address.token.encode() + b"C" + body
        assert send_raw(address, struct.pack(">I", len(text)) + text) == b""
        send_report(address, REPORT)
        assert received == [REPORT]


def test_a_message_that_ends_early_is_refused() -> None:
    with listening() as (address, received):
        assert send_raw(address, struct.pack(">I", 100) + address.token.encode() + b"C{") == b""
        assert received == []


def test_a_silent_peer_holds_the_listener_up_no_longer_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECEIVE_TIMEOUT_S", 0.2)
    with listening() as (address, received), socket.create_connection(("127.0.0.1", address.port)):
        send_report(address, REPORT)
        assert received == [REPORT]


def test_the_token_is_never_printed() -> None:
    with listening() as (address, _):
        assert address.token not in repr(address)
        assert len(address.token) == 32


def test_stop_closes_the_port_and_ends_the_thread() -> None:
    before = set(threading.enumerate())
    with listening() as (address, _):
        started = set(threading.enumerate()) - before
        assert [thread.daemon for thread in started] == [True]
    assert not any(thread.is_alive() for thread in started)
    with pytest.raises(OSError):
        send_report(address, REPORT)


def test_stop_may_be_called_twice() -> None:
    listener = CommitListener(lambda report: None, lambda: None)
    listener.stop()
    listener.stop()
    with pytest.raises(OSError):
        send_refusal(listener.address)
