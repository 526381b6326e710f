"""Kafka's frames: a size of four bytes, then a message of that size. Sizes are checked before memory is allocated."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from spark_kafka_sink.errors import AuthenticationError, ProtocolError, UsageError
from spark_kafka_sink.network.channel import Buffer

MAX_BUFFERS_PER_SEND: Final = 1024
"""IOV_MAX of Linux and macOS. With more buffers, sendmsg fails with EMSGSIZE."""

MAX_FRAME_SIZE: Final = 2**31 - 1

FIRST_PIECE: Final = 64 * 1024
"""The most bytes allocated when a frame's size is known, even if it announces 100 MB. Most frames are smaller."""

GROWTH: Final = 4
"""The factor by which a larger frame's memory grows. In total, this copies a third of the frame."""

TURN: Final = 1024 * 1024
"""The number of bytes of one frame after which other connections get their turn."""

_SIZE: Final = struct.Struct(">i")

_TLS_ALERT: Final = b"\x15\x03"

# The first bytes of other protocols, which show the usual mistakes about ports.
_STRANGERS: Final = (
    (b"HTTP", "an HTTP server listens there"),
    (_TLS_ALERT, "a TLS listener answered with an alert, because this connection is not encrypted"),
    (
        b"\x16\x03",
        "the other end speaks TLS, but this connection is not encrypted: it needs security.protocol=PLAINTEXT or SASL_PLAINTEXT, "
        "or a listener with TLS",
    ),
    (b"SSH-", "an SSH server listens there"),
    (b"GET ", "the other end speaks HTTP"),
    (b"POST", "the other end speaks HTTP"),
    (b"HEAD", "the other end speaks HTTP"),
)


class FrameReader:
    """Reads one connection's bytes and returns whole frames. `peer` is host:port, for error messages.

    Memory grows with the received bytes, not with the announced size. `max_size` may be changed between frames.
    `of_broker`: whether the far end is a broker.
    """

    def __init__(self, max_size: int, peer: str, *, of_broker: bool = False) -> None:
        self.max_size = max_size
        self.too_large = ""  # what to do about a frame that is larger, for its error
        self._peer = peer
        self._of_broker = of_broker
        self.bytes_read = 0
        self._size = bytearray(_SIZE.size)
        self._start()

    def _start(self) -> None:
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._unread = memoryview(self._size)

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun but not ended."""
        return self._frame is not None or len(self._unread) < _SIZE.size

    @property
    def progress(self) -> str:
        """The received part of the frame, for error messages."""
        if self._frame is None:
            return f"{_SIZE.size - len(self._unread)} of a size's {_SIZE.size} bytes"
        return f"{len(self._frame) - len(self._unread):,} of a frame's {self._frame_size:,} bytes"

    def read(self, recv_into: Callable[[memoryview], int | None]) -> memoryview | None:
        """Returns the next frame without its size, or None if it is incomplete or another connection has its turn.

        Args:
            recv_into: the channel's method.

        Raises:
            ProtocolError: the size is out of range.
            AuthenticationError: the first bytes from a broker are TLS.
            EOFError: the stream has ended.
        """
        while True:
            count = recv_into(self._unread)
            if count is None:
                return None
            if count == 0:
                raise EOFError
            self.bytes_read += count
            self._unread = self._unread[count:]
            if len(self._unread):
                continue
            if self._frame is None:
                self._frame_size = self._checked_size()
                self._frame = bytearray(min(self._frame_size, FIRST_PIECE))
                self._unread = memoryview(self._frame)
            elif len(self._frame) == self._frame_size:
                frame = memoryview(self._frame)
                self._start()
                return frame
            else:
                self._grow(self._frame)
                if len(self._frame) > TURN:
                    return None

    def _grow(self, full: bytearray) -> None:
        self._frame = bytearray(min(self._frame_size, GROWTH * len(full)))
        self._unread = memoryview(self._frame)
        self._unread[: len(full)] = full
        self._unread = self._unread[len(full) :]

    def _checked_size(self) -> int:
        size: int = _SIZE.unpack(self._size)[0]
        # Java accepts a size of 0, which SASL without Kafka's headers used. No Kafka message is empty.
        if 0 < size <= self.max_size:
            return size
        start = bytes(self._size)
        # A TLS server answers an unencrypted request with an alert. Later on, these bytes prove nothing.
        if self._of_broker and start.startswith(_TLS_ALERT) and self.bytes_read == _SIZE.size:
            raise AuthenticationError(
                f"broker {self._peer} speaks TLS, but this connection is not encrypted: it answered with a TLS alert. "
                "Set security.protocol=SSL or SASL_SSL, or use the port of a listener without TLS",
                broker=self._peer,
            )
        hint = next((hint for prefix, hint in _STRANGERS if start.startswith(prefix)), None)
        hint = hint or (self.too_large if size > self.max_size else "")
        raise ProtocolError(
            f"{self._peer} sent a frame of {size:,} bytes, but the size must be 1 to {self.max_size:,}"
            + (f": {hint}" if hint else f" (first bytes {start!r})"),
            peer=self._peer,
            size=size,
        )


class FrameWriter:
    """An outgoing frame: its size and the message's buffers, which are sent without copying them.

    The buffers must not change until the frame `is_done` or its connection is closed. Memoryviews must be of single bytes.
    `announced`: a size to announce instead of the real one, with which a test's broker truncates frames.
    """

    def __init__(self, buffers: Sequence[Buffer], announced: int | None = None) -> None:
        views = list(filter(len, buffers))
        # The bytes of the frame up to the end of each buffer, its own four included. Found and compared in C: a request to 200
        # partitions has 400 buffers.
        self._ends = list(accumulate(map(len, views), initial=_SIZE.size))
        size = self._ends[-1] - _SIZE.size
        if size > MAX_FRAME_SIZE:
            raise UsageError(f"a message of {size:,} bytes does not fit in a frame, which holds at most {MAX_FRAME_SIZE:,}")
        self._views: list[Buffer] = [_SIZE.pack(size if announced is None else announced), *views]
        self._next = 0
        self.size = self._left = size + _SIZE.size  # the frame's own four bytes included

    @property
    def bytes_written(self) -> int:
        return self.size - self._left

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def write(self, send: Callable[[Sequence[Buffer]], int]) -> bool:
        """Passes the buffers to the channel's `send`. Returns whether all are sent. It goes over each buffer once."""
        while self._left:
            sent = send(self._views[self._next : self._next + MAX_BUFFERS_PER_SEND])
            if not sent:
                return False
            self._left -= sent
            written = self.size - self._left
            self._next = place = bisect_right(self._ends, written, self._next)
            if self._left and (unsent := self._ends[place] - written) < len(self._views[place]):
                self._views[place] = memoryview(self._views[place])[-unsent:]
        return True
