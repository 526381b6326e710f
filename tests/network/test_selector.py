"""Selector: connections, frames both ways and calls from other threads, told once per poll."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.network.channel import PlainChannel
from spark_kafka_sink.network.selector import PollResult
from tests.network.ends import Ends, framed, received
from tests.waiting import HOUR_MS


def test_a_connection_is_told_when_it_is_made_and_can_send_from_then_on(ends: Ends) -> None:
    ends.connecting(1)
    assert not ends.selector.can_send(1)
    assert ends.until(lambda result: bool(result.connected)).connected == [1]
    assert ends.selector.can_send(1)
    assert ends.poll().connected == []


def test_messages_go_both_ways_in_frames(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.send(1, [b"req", bytearray(b"uest")])
    assert ends.poll().sent == [1]
    assert far.recv(100) == framed(b"request")
    far.sendall(framed(b"answer"))
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"answer")]


def test_a_poll_that_sent_does_not_wait_for_answers(ends: Ends) -> None:
    ends.connected()
    ends.selector.send(1, [b"the caller may have more to send"])
    assert ends.poll(HOUR_MS).sent == [1]


def test_a_frame_larger_than_the_sockets_buffers_goes_out_as_the_far_end_reads(ends: Ends) -> None:
    far = ends.connected()
    message = bytes(range(256)) * 80_000
    ends.selector.send(1, [message])
    assert ends.poll().sent == []
    assert not ends.selector.can_send(1)
    with pytest.raises(UsageError, match="is still sending a frame"):
        ends.selector.send(1, [b"another"])
    got = bytearray()
    sent = False
    while len(got) < len(message) + 4:
        got += far.recv(1 << 20)
        sent = sent or ends.poll().sent == [1]
    assert sent
    assert got == framed(message)
    assert ends.selector.can_send(1)


def test_a_poll_goes_on_until_a_frame_is_sent_whole(ends: Ends) -> None:
    """So that its caller has one round for each request, however often the socket is full."""
    far = ends.connected()
    message = bytes(20_000_000)
    ends.selector.send(1, [message])
    got = bytearray()

    def read() -> None:
        while len(got) < len(message) + 4:
            got.extend(far.recv(1 << 16))

    reader = threading.Thread(target=read)
    reader.start()
    assert ends.poll(30_000).sent == [1]
    reader.join(30)
    assert got == framed(message)


def test_another_thread_wakes_a_poll_that_sends(ends: Ends) -> None:
    ends.connected()
    ends.selector.send(1, [bytes(20_000_000)])  # nobody reads it
    waker = threading.Timer(0.05, ends.selector.wakeup)
    waker.start()
    assert ends.poll(HOUR_MS) == PollResult()
    waker.join(30)


def test_a_poll_that_sends_ends_in_time(ends: Ends) -> None:
    ends.connected()
    ends.selector.send(1, [bytes(20_000_000)])
    assert ends.poll(30) == PollResult()


def test_a_poll_gives_at_most_one_frame_per_connection_and_the_others_after_it(ends: Ends) -> None:
    far, other = ends.connected(1), ends.connected(2)
    far.sendall(framed(b"one") + framed(b"two") + framed(b"three"))
    other.sendall(framed(b"mine"))
    seen: list[tuple[int, bytes]] = []
    while len(seen) < 4:
        now = received(ends.until(lambda result: bool(result.received)))
        assert len({connection_id for connection_id, _ in now}) == len(now)
        seen += now
    assert [message for connection_id, message in seen if connection_id == 1] == [b"one", b"two", b"three"]


def test_a_muted_connection_is_silent_until_it_is_unmuted(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.mute(1)
    far.sendall(framed(b"later"))
    assert ends.poll(50).received == []
    ends.selector.unmute(1)
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"later")]


def test_what_a_muted_connection_says_wakes_no_poll_but_the_first(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.mute(1)
    far.sendall(framed(b"later"))
    ends.poll(5_000)
    began = time.monotonic()
    assert ends.poll(50).received == []
    assert time.monotonic() - began >= 0.045


def test_a_connection_muted_again_and_again_says_all_it_has_to_say(ends: Ends) -> None:
    far = ends.connected()
    seen = []
    for number in range(20):
        ends.selector.mute(1)
        far.sendall(framed(b"%d" % number))
        if number % 2:
            ends.poll(5)
        ends.selector.unmute(1)
        seen += received(ends.until(lambda result: bool(result.received)))
    assert seen == [(1, b"%d" % number) for number in range(20)]


def test_muting_a_connection_that_is_gone_does_nothing(ends: Ends) -> None:
    ends.connected()
    ends.selector.close_connection(1)
    ends.selector.mute(1)
    ends.selector.unmute(1)
    ends.selector.limit_frames(1, 5)
    assert ends.poll() == PollResult()


def test_an_accepted_connection_is_served_like_one_that_was_made(ends: Ends) -> None:
    near = socket.create_connection(ends.listener.getsockname())
    ends.far[7], _ = ends.listener.accept()
    ends.selector.register_accepted(7, PlainChannel(near, "client:1"))
    ends.far[7].sendall(framed(b"request"))
    ends.until(lambda result: result.connected == [7])
    assert received(ends.until(lambda result: bool(result.received))) == [(7, b"request")]


def test_a_connection_can_have_a_smaller_limit_than_the_others(ends: Ends) -> None:
    far, other = ends.connected(1), ends.connected(2)
    ends.selector.limit_frames(1, 3)
    far.sendall(framed(b"four"))
    other.sendall(framed(b"four"))
    result = ends.until(lambda result: bool(result.disconnected))
    assert "the size must be 1 to 3" in result.disconnected[0].error.message
    assert ends.selector.can_send(2)


def test_the_error_of_a_frame_above_the_limit_says_what_to_do(ends: Ends) -> None:
    far = ends.connected(1)
    ends.selector.limit_frames(1, 3, "ask for less")
    far.sendall(framed(b"four"))
    result = ends.until(lambda result: bool(result.disconnected))
    assert result.disconnected[0].error.message.endswith("the size must be 1 to 3: ask for less")


def test_a_muted_connection_still_sends(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.mute(1)
    ends.selector.send(1, [b"out"])
    assert ends.poll().sent == [1]
    assert far.recv(100) == framed(b"out")


def test_a_call_before_the_poll_ends_it_at_once_and_only_that_one(ends: Ends) -> None:
    ends.selector.wakeup()
    ends.poll(HOUR_MS)
    began = time.monotonic()
    ends.poll(50)
    assert time.monotonic() - began >= 0.045
