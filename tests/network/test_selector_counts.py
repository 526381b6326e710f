"""What went over each connection is counted to the byte, whole frames and parts of them."""

from __future__ import annotations

import time

from tests.network.ends import Ends, framed, received


def test_a_frame_that_goes_out_in_parts_counts_its_bytes_once(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.take_counts()
    message = bytes(20_000_000)
    ends.selector.send(1, [message])
    ends.poll()
    begun = ends.selector.take_counts().of(1)
    assert 0 < begun.sent_bytes < len(message)
    assert (begun.writes, begun.requests, begun.request_bytes) == (1, 0, 0)
    read, rest_bytes, writes, requests = 0, 0, 0, []
    while read < len(message) + 4:
        read += len(far.recv(1 << 20))
        ends.poll()
        counts = ends.selector.take_counts().of(1)
        rest_bytes, writes = rest_bytes + counts.sent_bytes, writes + counts.writes
        requests += [(counts.request_bytes, counts.largest_request)] * counts.requests
    assert begun.sent_bytes + rest_bytes == len(message) + 4
    assert writes > 1
    assert requests == [(len(message) + 4, len(message) + 4)]


def test_a_frame_that_comes_in_parts_counts_its_bytes_once_and_one_response(ends: Ends) -> None:
    far, frame = ends.connected(), framed(bytes(1000))
    ends.selector.take_counts()
    far.sendall(frame[:600])
    ends.until(lambda _: ends.selector.counts.of(1).received_bytes >= 600)
    assert ends.selector.take_counts().of(1).responses == 0
    far.sendall(frame[600:])
    assert received(ends.until(lambda result: bool(result.received))) == [(1, bytes(1000))]
    counts = ends.selector.take_counts().of(1)
    assert (counts.received_bytes, counts.responses) == (404, 1)


def test_connections_made_and_closed_are_counted_and_those_there_are(ends: Ends) -> None:
    ends.connected(1)
    ends.connected(2).close()
    assert ends.selector.connection_count() == 2
    ends.lost()
    counts = ends.selector.take_counts()
    assert (counts.created, counts.closed, ends.selector.connection_count()) == (2, 1, 1)
    ends.selector.close_connection(2)  # gone already
    assert ends.selector.take_counts().closed == 0


def test_a_polls_time_is_waiting_or_work(ends: Ends) -> None:
    begun_ns = time.monotonic_ns()
    ends.poll(30)
    passed_ns = time.monotonic_ns() - begun_ns
    counts = ends.selector.take_counts()
    assert counts.polls == 1
    assert counts.waited_ns >= 29_000_000
    assert 0 < counts.busy_ns < passed_ns - counts.waited_ns
    assert counts.connections == {}
