"""What went over the network in a while, as plain numbers: kept by the selector's thread, taken away after each poll."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ConnectionCounts:
    """One connection's. reads, writes: system calls' worth of bytes; requests, responses: whole ones. Sizes are bytes with
    the frame's own four, as Java's NetworkSend and NetworkReceive count them."""

    reads: int = 0
    received_bytes: int = 0
    responses: int = 0
    writes: int = 0
    sent_bytes: int = 0
    requests: int = 0
    request_bytes: int = 0
    largest_request: int = 0


@dataclass(slots=True)
class NetworkCounts:
    """polls: looks at the sockets, in which `waited_ns` were spent waiting and `busy_ns` reading and writing.

    answers: with the ms that they told to wait, mostly 0. connections: by id, those over which something went.
    """

    polls: int = 0
    waited_ns: int = 0
    busy_ns: int = 0
    created: int = 0
    closed: int = 0
    answers: int = 0
    throttled_ms: int = 0
    longest_throttle_ms: int = 0
    connections: dict[int, ConnectionCounts] = field(default_factory=dict)

    def of(self, connection_id: int) -> ConnectionCounts:
        counts = self.connections.get(connection_id)
        if counts is None:
            counts = self.connections[connection_id] = ConnectionCounts()
        return counts

    def throttled(self, throttle_ms: int) -> None:
        """What an answer told."""
        self.answers += 1
        self.throttled_ms += throttle_ms
        self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_ms)

    def read(self, connection_id: int, size: int, *, whole: bool) -> None:
        """So many bytes came; `whole`: and with them a response's last."""
        counts = self.of(connection_id)
        counts.reads += size > 0
        counts.received_bytes += size
        counts.responses += whole

    def wrote(self, connection_id: int, size: int, frame_size: int) -> None:
        """So many bytes went; `frame_size` is that of the request whose last they were, or 0."""
        counts = self.of(connection_id)
        counts.writes += size > 0
        counts.sent_bytes += size
        if frame_size:
            counts.requests += 1
            counts.request_bytes += frame_size
            counts.largest_request = max(counts.largest_request, frame_size)
