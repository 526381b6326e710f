"""A connection as its selector sees it: channel, state, the frames it reads and writes; and the counts of what went over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from selectors import EVENT_READ, EVENT_WRITE

from spark_kafka_sink.network.channel import Channel
from spark_kafka_sink.network.frames import FrameReader, FrameWriter


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


class ChannelState(Enum):
    """CONNECTING: TCP. HANDSHAKING: what the channel needs before frames (TLS). READY: frames."""

    CONNECTING = auto()
    HANDSHAKING = auto()
    READY = auto()


class KafkaChannel:
    """Java's KafkaChannel: bytes and frames of one connection, on the selector's thread.

    events: those that the system reports now. overheard: whether bytes came or it ended while it was muted. writer: the frame on
    its way, if any.
    """

    def __init__(self, connection_id: int, channel: Channel, max_frame_size: int, now_ms: int, state: ChannelState) -> None:
        self.connection_id = connection_id
        self.channel = channel
        self.state = state
        self.muted = False
        self.overheard = False
        self.last_active_ms = now_ms
        self.events = 0
        # A connection that is still being made is a client's.
        self.reader = FrameReader(max_frame_size, channel.peer, of_broker=state is ChannelState.CONNECTING)
        self.writer: FrameWriter | None = None

    def wanted_events(self) -> int:
        if self.state is ChannelState.CONNECTING:
            return EVENT_WRITE
        if self.state is ChannelState.HANDSHAKING:
            return self.channel.interest
        # A muted one is listened to, as before, until something comes: mostly it is unmuted first, and the system need not be
        # told twice for each request (a fifth of a broker's rate with 50 busy connections).
        is_listened_to = not self.muted or (bool(self.events & EVENT_READ) and not self.overheard)
        channel = self.channel
        return (channel.read_needs if is_listened_to else 0) | (channel.write_needs if self.writer is not None else 0)

    def prepare(self) -> bool:
        """Goes on towards READY. Returns whether it has just been reached."""
        if self.state is ChannelState.CONNECTING and self.channel.finish_connect():
            self.state = ChannelState.HANDSHAKING
        if self.state is ChannelState.HANDSHAKING and self.channel.handshake():
            self.state = ChannelState.READY
            return True
        return False

    def write(self, counts: NetworkCounts) -> bool:
        """Returns whether a frame has just been sent whole."""
        writer = self.writer
        if writer is None:
            return False
        before = writer.bytes_written
        whole = writer.write(self.channel.send)
        counts.wrote(self.connection_id, writer.bytes_written - before, writer.size if whole else 0)
        if whole:
            self.writer = None
        return whole

    def read(self, counts: NetworkCounts) -> memoryview | None:
        """Returns a frame that has just become whole."""
        before = self.reader.bytes_read
        frame = self.reader.read(self.channel.recv_into)
        counts.read(self.connection_id, self.reader.bytes_read - before, whole=frame is not None)
        return frame

    def cut_off(self) -> str:
        """Returns in words what the end of the stream means here."""
        if self.state is not ChannelState.READY:
            return "it closed the connection during the handshake"
        if self.reader.in_frame:
            return f"it closed the connection after {self.reader.progress}"
        return "it closed the connection"
