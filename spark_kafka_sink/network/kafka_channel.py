"""A connection as its selector sees it: channel, state, incoming and outgoing frames, and traffic counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from selectors import EVENT_READ, EVENT_WRITE

from spark_kafka_sink.network.channel import Channel
from spark_kafka_sink.network.frames import FrameReader, FrameWriter


@dataclass(slots=True)
class ConnectionCounts:
    """The counts of one connection.

    reads, writes: system calls that moved bytes. requests, responses: complete ones. Sizes are in bytes and include the frame's
    own four, as in Java's NetworkSend and NetworkReceive.
    """

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
    """The counts of all connections. waited_ns, busy_ns: the time spent waiting, and reading and writing, in all polls.

    answers: responses that contain a throttle time, mostly 0. connections: connections with traffic, by id.
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
        """Counts a response's throttle time."""
        self.answers += 1
        self.throttled_ms += throttle_ms
        self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_ms)

    def read(self, connection_id: int, size: int, *, whole: bool) -> None:
        """Counts `size` received bytes. `whole`: they complete a response."""
        counts = self.of(connection_id)
        counts.reads += size > 0
        counts.received_bytes += size
        counts.responses += whole

    def wrote(self, connection_id: int, size: int, frame_size: int) -> None:
        """Counts `size` sent bytes. `frame_size`: the size of the request that they complete, or 0."""
        counts = self.of(connection_id)
        counts.writes += size > 0
        counts.sent_bytes += size
        if frame_size:
            counts.requests += 1
            counts.request_bytes += frame_size
            counts.largest_request = max(counts.largest_request, frame_size)


class ChannelState(Enum):
    """States of a channel. CONNECTING: TCP connects. HANDSHAKING: TLS and the like before frames. READY: frames flow."""

    CONNECTING = auto()
    HANDSHAKING = auto()
    READY = auto()


class KafkaChannel:
    """The bytes and frames of one connection, on the selector's thread (Java's KafkaChannel).

    events: the events that the system reports now. overheard: whether bytes or the end arrived while it was muted. writer: the
    frame being sent, if any.
    """

    def __init__(self, connection_id: int, channel: Channel, max_frame_size: int, now_ms: int, state: ChannelState) -> None:
        self.connection_id = connection_id
        self.channel = channel
        self.state = state
        self.muted = False
        self.overheard = False
        self.last_active_ms = now_ms
        self.events = 0
        # Only a client's connection is still being established here.
        self.reader = FrameReader(max_frame_size, channel.peer, of_broker=state is ChannelState.CONNECTING)
        self.writer: FrameWriter | None = None

    def wanted_events(self) -> int:
        if self.state is ChannelState.CONNECTING:
            return EVENT_WRITE
        if self.state is ChannelState.HANDSHAKING:
            return self.channel.interest
        # A muted connection stays registered until something arrives. Usually it is unmuted first, which saves two system calls
        # per request (a fifth of a broker's throughput with 50 busy connections).
        is_listened_to = not self.muted or (bool(self.events & EVENT_READ) and not self.overheard)
        channel = self.channel
        return (channel.read_needs if is_listened_to else 0) | (channel.write_needs if self.writer is not None else 0)

    @property
    def is_only_writing(self) -> bool:
        """Whether EVENT_WRITE means that more of a frame can be sent, and nothing else. A read of TLS may wait for it, too."""
        return self.state is ChannelState.READY and self.writer is not None and self.channel.read_needs == EVENT_READ

    def prepare(self) -> bool:
        """Continues towards READY. Returns whether it has just become READY."""
        if self.state is ChannelState.CONNECTING and self.channel.finish_connect():
            self.state = ChannelState.HANDSHAKING
        if self.state is ChannelState.HANDSHAKING and self.channel.handshake():
            self.state = ChannelState.READY
            return True
        return False

    def write(self, counts: NetworkCounts) -> bool:
        """Sends what can be sent now. Returns whether this completed a frame."""
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
        """Reads what can be read now. Returns a frame if this completed one."""
        before = self.reader.bytes_read
        frame = self.reader.read(self.channel.recv_into)
        counts.read(self.connection_id, self.reader.bytes_read - before, whole=frame is not None)
        return frame

    def cut_off(self) -> str:
        """Returns a description of the end of the stream."""
        if self.state is not ChannelState.READY:
            return "it closed the connection during the handshake"
        if self.reader.in_frame:
            return f"it closed the connection after {self.reader.progress}"
        return "it closed the connection"
