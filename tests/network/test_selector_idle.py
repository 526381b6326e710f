"""Selector closes connections on which nothing happens, and no others."""

from __future__ import annotations

from tests.network.ends import IDLE_MS, Ends, framed
from tests.waiting import HOUR_MS


def test_a_connection_on_which_nothing_happens_is_closed_as_idle(ends: Ends) -> None:
    ends.connected(1)
    ends.clock.now_ms += 2_000
    ends.connected(2)
    ends.clock.now_ms += IDLE_MS - 2_000
    assert ends.poll().disconnected == []
    ends.clock.now_ms += 1
    (lost,) = ends.poll().disconnected
    assert (lost.connection_id, lost.idle) == (1, True)
    assert "connections.max.idle.ms" in lost.error.message
    assert ends.selector.can_send(2)


def test_sending_and_receiving_keep_a_connection_from_being_idle(ends: Ends) -> None:
    far = ends.connected()
    ends.clock.now_ms += IDLE_MS - 1
    ends.selector.send(1, [b"still here"])
    ends.poll()
    ends.clock.now_ms += IDLE_MS - 1
    assert ends.poll().disconnected == []
    far.sendall(framed(b"so am I"))
    ends.until(lambda result: bool(result.received))
    ends.clock.now_ms += IDLE_MS - 1
    assert ends.poll().disconnected == []


def test_each_connection_is_closed_when_it_has_been_idle_itself(ends: Ends) -> None:
    for connection_id in (1, 2, 3):
        ends.connected(connection_id)
        ends.clock.now_ms += 1_000
    ends.selector.send(1, [b"busy"])  # the first one is now the last
    ends.poll()
    ends.clock.now_ms += IDLE_MS - 3_000
    closed = []
    for _ in range(3_010):
        ends.clock.now_ms += 1
        closed += [(lost.connection_id, ends.clock.now_ms) for lost in ends.poll().disconnected]
    assert closed == [(2, 1_000 + 1_000 + IDLE_MS + 1), (3, 1_000 + 2_000 + IDLE_MS + 1), (1, 1_000 + 3_000 + IDLE_MS + 1)]


def test_a_poll_waits_no_longer_than_until_a_connection_is_idle(ends: Ends) -> None:
    ends.connected()
    ends.clock.now_ms += IDLE_MS - 10
    ends.poll(HOUR_MS)
