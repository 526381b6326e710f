"""A connection as its selector sees it: channel, where it stands, the frame it reads and the frame it writes."""

from __future__ import annotations

from enum import Enum, auto
from selectors import EVENT_READ, EVENT_WRITE

from spark_kafka_sink.network.channel import Channel
from spark_kafka_sink.network.frames import FrameReader, FrameWriter
from spark_kafka_sink.network.network_counts import NetworkCounts


class ChannelState(Enum):
    """CONNECTING: TCP. HANDSHAKING: what the channel needs before frames (TLS). READY: frames."""

    CONNECTING = auto()
    HANDSHAKING = auto()
    READY = auto()


class KafkaChannel:
    """Java's KafkaChannel: bytes and frames of one connection, on the selector's thread.

    events: what the system tells of it now. overheard: while it was muted, bytes came or it ended.
    """

    def __init__(
        self,
        connection_id: int,
        channel: Channel,
        max_frame_size: int,
        now_ms: int,
        state: ChannelState = ChannelState.CONNECTING,
    ) -> None:
        self.connection_id = connection_id
        self.channel = channel
        self.state = state
        self.muted = False
        self.overheard = False
        self.last_active_ms = now_ms
        self.events = 0
        self._reader = FrameReader(max_frame_size, channel.peer)
        self._writer: FrameWriter | None = None

    def limit_frames(self, max_size: int) -> None:
        self._reader.max_size = max_size

    @property
    def is_sending(self) -> bool:
        return self._writer is not None

    def wanted_events(self) -> int:
        if self.state is ChannelState.CONNECTING:
            return EVENT_WRITE
        if self.state is ChannelState.HANDSHAKING:
            return self.channel.interest
        return (EVENT_READ if self._is_listened_to() else 0) | (EVENT_WRITE if self.is_sending else 0)

    def set_muted(self, muted: bool) -> None:
        self.muted = muted
        self.overheard = False

    def _is_listened_to(self) -> bool:
        # A muted one is, as it was before, until it says something: mostly it is unmuted first, and the system need not be told
        # twice for each request (a fifth of a broker's rate with 50 busy connections).
        return not self.muted or (bool(self.events & EVENT_READ) and not self.overheard)

    def prepare(self) -> bool:
        """Go on towards READY; whether it has just been reached."""
        if self.state is ChannelState.CONNECTING and self.channel.finish_connect():
            self.state = ChannelState.HANDSHAKING
        if self.state is ChannelState.HANDSHAKING and self.channel.handshake():
            self.state = ChannelState.READY
            return True
        return False

    def send(self, frame: FrameWriter) -> None:
        self._writer = frame

    def write(self, counts: NetworkCounts) -> bool:
        """Whether a frame has just been sent whole."""
        writer = self._writer
        if writer is None:
            return False
        before = writer.bytes_written
        whole = writer.write(self.channel.send)
        counts.wrote(self.connection_id, writer.bytes_written - before, writer.size if whole else 0)
        if whole:
            self._writer = None
        return whole

    def read(self, counts: NetworkCounts) -> memoryview | None:
        """A frame that has just become whole."""
        before = self._reader.bytes_read
        frame = self._reader.read(self.channel.recv_into)
        counts.read(self.connection_id, self._reader.bytes_read - before, whole=frame is not None)
        return frame

    def cut_off(self) -> str:
        """What the end of the stream means here, in words."""
        if self.state is not ChannelState.READY:
            return "it closed the connection during the handshake"
        if self._reader.in_frame:
            return f"it closed the connection after {self._reader.progress}"
        return "it closed the connection"
