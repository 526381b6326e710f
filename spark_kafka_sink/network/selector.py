"""The loop over sockets: connects, writes and reads frames, and reports events once per poll."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE

from spark_kafka_sink.errors import DisconnectedError, PeerError, UsageError
from spark_kafka_sink.network.channel import Buffer, Channel
from spark_kafka_sink.network.frames import FrameWriter
from spark_kafka_sink.network.kafka_channel import ChannelState, KafkaChannel, NetworkCounts

NEVER = -1
"""A `max_idle_ms` that never closes idle connections."""

END_OF_TIME_MS = 2**62
"""A time that never comes."""


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Wakeup:
    """A pair of sockets with which other threads wake a waiting thread.

    `wakeup()` may be called from any thread, even after `close()`. Everything else belongs to the waiting thread.
    """

    def __init__(self, ends: tuple[socket.socket, socket.socket] | None = None) -> None:
        """Creates a wakeup. `ends`: the receiver and the sender to take over; a new pair by default."""
        self._receiver, self._sender = ends or socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._signalled = False

    def fileno(self) -> int:
        return self._receiver.fileno()

    def wakeup(self) -> None:
        """Wakes the thread, with at most one system call until it is awake, however many threads call."""
        if self._signalled:
            return
        self._signalled = True
        try:
            self._sender.send(b"\0")
        except BlockingIOError:
            pass  # full of unread signals, which end the wait
        except OSError:
            if self._receiver.fileno() >= 0:  # close() ends the receiver first
                self._signalled = False
                raise
            # Closed: no thread waits any more.

    def drain(self) -> None:
        """Clears the signals so far. The caller must look for its work afterwards, never before."""
        try:
            while len(self._receiver.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass  # empty: all signals are read, or there were none
        # Only now: if the flag were cleared before recv, a signal in between would leave it set and the pair empty forever.
        self._signalled = False

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A closed connection. `idle`: this end closed it because it was idle, which is not an error of the far end."""

    connection_id: int
    error: PeerError
    idle: bool = False


@dataclass(slots=True)
class PollResult:
    """The events of one poll by connection id, in the order to handle them."""

    sent: list[int] = field(default_factory=list)
    received: list[tuple[int, memoryview]] = field(default_factory=list)
    disconnected: list[Disconnected] = field(default_factory=list)
    connected: list[int] = field(default_factory=list)


class Selector:
    """Many connections, each with an id that the caller chooses (Java's Selector).

    One thread owns it and everything in it. Other threads may call only `wakeup()` and `connection_count()`. A connection that
    fails is closed and reported by the poll. One that the caller closes is not reported.
    """

    def __init__(self, *, max_frame_size: int, max_idle_ms: int = NEVER, clock: Callable[[], int] = monotonic_ms) -> None:
        self._max_frame_size = max_frame_size
        self._max_idle_ms = max_idle_ms
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup()
        self._selector.register(self._wakeup, EVENT_READ)
        self._channels: dict[int, KafkaChannel] = {}
        # No connection is idle for too long before this time. It may be earlier, because activity does not change it.
        self._idle_due_ms = END_OF_TIME_MS
        self._to_write: list[KafkaChannel] = []
        self._buffered: dict[int, KafkaChannel] = {}
        self.counts = NetworkCounts()

    # Connections

    def register(self, connection_id: int, channel: Channel) -> None:
        """Takes over a connected or connecting channel. The poll reports it as connected after its handshake."""
        self._register(connection_id, channel, ChannelState.CONNECTING)

    def register_accepted(self, connection_id: int, channel: Channel) -> None:
        """Takes over a channel that a listener accepted."""
        self._register(connection_id, channel, ChannelState.HANDSHAKING)

    def _register(self, connection_id: int, channel: Channel, state: ChannelState) -> None:
        if connection_id in self._channels:
            raise UsageError(f"connection {connection_id} already exists")
        known = KafkaChannel(connection_id, channel, self._max_frame_size, self._clock(), state)
        known.events = known.wanted_events()
        self._selector.register(channel, known.events, known)
        self._channels[connection_id] = known
        if self._max_idle_ms != NEVER:
            self._idle_due_ms = min(self._idle_due_ms, known.last_active_ms + self._max_idle_ms + 1)

    def send(self, connection_id: int, buffers: Sequence[Buffer], *, announced: int | None = None) -> None:
        """Starts to send a message as one frame. The connection must be able to (`can_send`).

        The buffers must not change until the poll reports the frame as sent or the connection is closed. `announced`: as in
        FrameWriter.
        """
        channel = self._channels.get(connection_id)
        if channel is None or channel.state is not ChannelState.READY or channel.writer is not None:
            raise UsageError(f"connection {connection_id} cannot send now: it is not ready or is still sending a frame")
        channel.writer = FrameWriter(buffers, announced)
        channel.last_active_ms = self._clock()
        self._to_write.append(channel)

    def can_send(self, connection_id: int) -> bool:
        channel = self._channels.get(connection_id)
        return channel is not None and channel.state is ChannelState.READY and channel.writer is None

    def mute(self, connection_id: int) -> None:
        """Stops reading from a connection until `unmute`. Bytes already read are kept. Does nothing if it is closed."""
        self._set_muted(connection_id, True)

    def unmute(self, connection_id: int) -> None:
        self._set_muted(connection_id, False)

    def _set_muted(self, connection_id: int, muted: bool) -> None:
        channel = self._channels.get(connection_id)
        if channel is None:
            return
        channel.muted, channel.overheard = muted, False
        self._note_buffered(channel)
        self._watch(channel)

    def limit_frames(self, connection_id: int, max_size: int, too_large: str = "") -> None:
        """Limits the frames of one connection to `max_size` bytes. Does nothing if it is closed.

        too_large: what to do about a larger one, for its error.
        """
        channel = self._channels.get(connection_id)
        if channel is not None:
            channel.reader.max_size = max_size
            channel.reader.too_large = too_large

    def close_connection(self, connection_id: int) -> None:
        """Closes a connection without reporting it. A frame being sent is dropped, and its buffers are free afterwards."""
        channel = self._channels.pop(connection_id, None)
        if channel is None:
            return
        self._buffered.pop(connection_id, None)
        if channel.events:
            self._selector.unregister(channel.channel)
        channel.events = 0
        channel.channel.close()
        self.counts.closed += 1

    def wakeup(self) -> None:
        """Ends the current or the next poll. Any thread may call it."""
        self._wakeup.wakeup()

    def connection_count(self) -> int:
        """Returns the number of connections, including connecting ones. Any thread may call it."""
        return len(self._channels)

    def take_counts(self) -> NetworkCounts:
        """Returns the counts since the last call."""
        counts, self.counts = self.counts, NetworkCounts()
        return counts

    def close(self) -> None:
        for connection_id in list(self._channels):
            self.close_connection(connection_id)
        self._selector.close()
        self._wakeup.close()

    # The loop

    def poll(self, timeout_ms: int) -> PollResult:
        """Waits for events for at most `timeout_ms`, and does all work that needs no waiting.

        It receives at most one frame per connection, so that no peer starves the others and a muted one stays quiet.
        """
        result = PollResult()
        begun_ns, waited_ns = time.monotonic_ns(), 0
        now_ms = self._clock()
        # Frames added since the last poll are written without asking the system first. Usually this works, and a request then
        # costs one system call instead of four.
        new, self._to_write = self._to_write, []
        for channel in new:
            self._serve(channel, 0, now_ms, result, writes=True)
        buffered = list(self._buffered.values())
        until_ms = now_ms if result.sent or result.disconnected or buffered else now_ms + timeout_ms
        while True:
            waiting_ns = time.monotonic_ns()
            keys = self._selector.select(max(0, min(until_ms, self._idle_due_ms) - now_ms) / 1000)
            waited_ns += time.monotonic_ns() - waiting_ns
            now_ms = self._clock()
            ready, only_writes = self._ready(keys, buffered)
            unsent = _unsent(ready.values()) if only_writes else 0
            for channel, events in ready.values():
                self._serve(channel, events, now_ms, result)
            if now_ms >= self._idle_due_ms:
                self._close_idle(now_ms, result)
            # It waits again as long as the only event is that more bytes of a frame can be sent: the caller's round around each
            # poll costs more than such a step, of which a request of 4 MiB has two or three.
            if not only_writes or until_ms <= now_ms or result.sent or result.received or result.disconnected:
                break
            if _unsent(ready.values()) == unsent:  # a channel that takes nothing, though the system says that it can
                break
        self.counts.polls += 1
        self.counts.waited_ns += waited_ns
        self.counts.busy_ns += time.monotonic_ns() - begun_ns - waited_ns
        return result

    def _ready(
        self, keys: Sequence[tuple[selectors.SelectorKey, int]], buffered: Iterable[KafkaChannel]
    ) -> tuple[dict[int, tuple[KafkaChannel, int]], bool]:
        """Returns the channels with events, and whether all that can be done is to send more bytes of frames."""
        ready = {}
        only_writes = bool(keys)
        for key, events in keys:
            channel = key.data
            if channel is None:
                self._wakeup.drain()
                only_writes = False
            else:
                ready[channel.connection_id] = (channel, events)
                only_writes = only_writes and events == EVENT_WRITE and channel.is_only_writing
        for channel in buffered:
            _, events = ready.get(channel.connection_id, (channel, 0))
            ready[channel.connection_id] = (channel, events | channel.channel.read_needs)
        return ready, only_writes

    def _serve(self, channel: KafkaChannel, events: int, now_ms: int, result: PollResult, *, writes: bool = False) -> None:
        """Does what the events allow. `writes`: sends, too. A connection that fails is closed and reported."""
        if self._channels.get(channel.connection_id) is not channel:
            return
        channel.last_active_ms = now_ms
        io = channel.channel
        try:
            if channel.state is not ChannelState.READY:
                self._prepare(channel, result)
            else:
                # Read before write: bytes that a peer sent before it closed the connection can still be read, and a write that
                # needs a read (TLS) can continue afterwards.
                if events & io.read_needs:
                    self._read(channel, result)
                if (writes or events & io.write_needs) and channel.write(self.counts):
                    result.sent.append(channel.connection_id)
        except PeerError as error:
            self._fail(channel, error, result)
        except EOFError:
            self._fail(channel, _lost(channel, channel.cut_off()), result)
        except OSError as error:
            self._fail(channel, _lost(channel, error.strerror or str(error)), result)
        else:
            self._watch(channel)

    def _prepare(self, channel: KafkaChannel, result: PollResult) -> None:
        if channel.prepare():
            result.connected.append(channel.connection_id)
            self.counts.created += 1
            self._note_buffered(channel)

    def _read(self, channel: KafkaChannel, result: PollResult) -> None:
        if channel.muted:
            channel.overheard = True
            return
        frame = channel.read(self.counts)
        if frame is not None:
            result.received.append((channel.connection_id, frame))
        self._note_buffered(channel)

    def _fail(self, channel: KafkaChannel, error: PeerError, result: PollResult, *, idle: bool = False) -> None:
        self.close_connection(channel.connection_id)
        result.disconnected.append(Disconnected(channel.connection_id, error, idle))

    def _watch(self, channel: KafkaChannel) -> None:
        """Updates the events that the system watches for this connection."""
        wanted = channel.wanted_events()
        if wanted == channel.events:
            return
        if not wanted:
            self._selector.unregister(channel.channel)
        elif not channel.events:
            self._selector.register(channel.channel, wanted, channel)
        else:
            self._selector.modify(channel.channel, wanted, channel)
        channel.events = wanted

    def _note_buffered(self, channel: KafkaChannel) -> None:
        if channel.state is ChannelState.READY and not channel.muted and channel.channel.has_buffered_bytes():
            self._buffered[channel.connection_id] = channel
        else:
            self._buffered.pop(channel.connection_id, None)

    # Idle connections

    def _close_idle(self, now_ms: int, result: PollResult) -> None:
        by_age = sorted(self._channels.values(), key=lambda channel: channel.last_active_ms)
        self._idle_due_ms = END_OF_TIME_MS
        for channel in by_age:
            # Strictly longer, so that a connection served in this poll is never idle and gets only one report.
            if (idle_ms := now_ms - channel.last_active_ms) <= self._max_idle_ms:
                self._idle_due_ms = channel.last_active_ms + self._max_idle_ms + 1
                return
            text = f"it was idle for {idle_ms:,} ms (connections.max.idle.ms)"
            self._fail(channel, _lost(channel, text), result, idle=True)


def _unsent(served: Iterable[tuple[KafkaChannel, int]]) -> int:
    """Returns the bytes of these channels' frames that are yet to be sent."""
    writers = [channel.writer for channel, _ in served]
    return sum(writer.size - writer.bytes_written for writer in writers if writer is not None)


def _lost(channel: KafkaChannel, cause: str) -> DisconnectedError:
    peer = channel.channel.peer
    done = "lost the connection to" if channel.state is ChannelState.READY else "could not connect to"
    is_handshake = channel.state is ChannelState.HANDSHAKING
    return DisconnectedError(f"{done} {peer}: {cause}", peer=peer, during_handshake=is_handshake)
