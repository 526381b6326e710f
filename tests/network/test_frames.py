"""Frames: whole ones out of any bytes in any pieces, and never memory for a size that cannot be."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import AuthenticationError, ProtocolError, UsageError
from spark_kafka_sink.network.channel import Buffer
from spark_kafka_sink.network.frames import FIRST_PIECE, GROWTH, MAX_BUFFERS_PER_SEND, FrameReader, FrameWriter
from tests.every import every

LIMIT = 100 * 1024 * 1024


class Stream:
    """A channel's recv_into over pieces of bytes; between two pieces nothing is there to be read."""

    def __init__(self, *pieces: bytes, ends: bool = False) -> None:
        self._pieces: list[bytes | None] = [part for piece in pieces for part in (piece, None)]
        self._ends = ends

    def recv_into(self, buffer: memoryview) -> int | None:
        if not self._pieces:
            return 0 if self._ends else None
        piece = self._pieces.pop(0)
        if piece is None:
            return None
        taken = piece[: len(buffer)]
        buffer[: len(taken)] = taken
        if len(piece) > len(taken):
            self._pieces.insert(0, piece[len(taken) :])
        return len(taken)

    @property
    def has_more(self) -> bool:
        return bool(self._pieces) and self._pieces[0] is not None


class Sink:
    """A channel's send that takes as many bytes a call as it is told to, then as many as it gets."""

    def __init__(self, *takes: int) -> None:
        self._takes = list(takes)
        self.data = bytearray()
        self.calls: list[Sequence[Buffer]] = []

    def send(self, buffers: Sequence[Buffer]) -> int:
        self.calls.append(list(buffers))
        data = b"".join(buffers)
        taken = data[: self._takes.pop(0)] if self._takes else data
        self.data += taken
        return len(taken)


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def read_all(reader: FrameReader, recv_into: Callable[[memoryview], int | None], tries: int) -> list[bytes]:
    frames = (reader.read(recv_into) for _ in range(tries))
    return [bytes(frame) for frame in frames if frame is not None]


@given(messages=st.lists(st.binary(min_size=1, max_size=50), max_size=5), data=st.data())
def test_frames_come_out_whole_however_the_bytes_are_cut(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if b > a]
    reader = FrameReader(LIMIT, "broker:9092")

    assert read_all(reader, Stream(*pieces).recv_into, 100) == messages
    assert not reader.in_frame


@pytest.mark.fault("hostile bytes", "one byte at a time")
def test_a_frame_that_comes_one_byte_at_a_time_is_read() -> None:
    pieces = [bytes([byte]) for byte in framed(b"slowly")]

    assert read_all(FrameReader(LIMIT, "broker:9092"), Stream(*pieces).recv_into, 100) == [b"slowly"]


def test_frames_read_earlier_are_not_written_over_by_later_ones() -> None:
    stream = Stream(framed(b"one"), framed(b"two"))
    reader = FrameReader(LIMIT, "broker:9092")
    frames = [frame for _ in range(4) if (frame := reader.read(stream.recv_into)) is not None]

    assert [bytes(frame) for frame in frames] == [b"one", b"two"]


@pytest.mark.fault("hostile bytes", "frame size negative, zero or over the limit")
@every(
    "start, says",
    [
        (struct.pack(">i", 0), "a frame of 0 bytes"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", -(2**31)), "a frame of -2,147,483,648 bytes"),
        (struct.pack(">i", LIMIT + 1), "a frame of 104,857,601 bytes, but the size must be 1 to 104,857,600"),
        (struct.pack(">i", 2**31 - 1), "a frame of 2,147,483,647 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP server listens there"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "a TLS listener answered with an alert"),
        (b"\x16\x03\x01\x02\x00\x01", "the other end speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH server listens there"),
        (b"GET / HTTP/1.1\r\n", "the other end speaks HTTP"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_memory_is_taken(start: bytes, says: str) -> None:
    reader = FrameReader(LIMIT, "broker:9092")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as refused:
            reader.read(Stream(start).recv_into)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert says in refused.value.message
    assert refused.value.message.startswith("broker:9092 sent ")
    assert peak < 100_000


ALERT = b"\x15\x03\x03\x00\x02\x02\x28"


@pytest.mark.fault("hostile bytes", "HTTP or a TLS alert instead of Kafka")
def test_a_tls_alert_for_a_first_answer_proves_that_a_broker_speaks_tls() -> None:
    with pytest.raises(AuthenticationError) as refused:
        FrameReader(LIMIT, "broker:9093", of_broker=True).read(Stream(ALERT).recv_into)

    assert refused.value.message.startswith("broker broker:9093 speaks TLS, but this connection is not encrypted")
    assert "Set security.protocol=SSL or SASL_SSL" in refused.value.message
    assert refused.value.facts == {"broker": "broker:9093"}


def test_a_tls_alert_after_an_answer_proves_nothing() -> None:
    stream, reader = Stream(framed(b"answer"), ALERT), FrameReader(LIMIT, "broker:9093", of_broker=True)
    assert read_all(reader, stream.recv_into, 1) == [b"answer"]
    with pytest.raises(ProtocolError, match="with an alert"):
        while True:
            reader.read(stream.recv_into)


def test_the_largest_size_that_is_allowed_is_taken() -> None:
    assert read_all(FrameReader(3, "broker:9092"), Stream(framed(b"abc")).recv_into, 1) == [b"abc"]


@every("size", [FIRST_PIECE, FIRST_PIECE + 1, 4 * FIRST_PIECE, 4 * FIRST_PIECE + 1, 5_000_000])
def test_a_frame_of_any_size_comes_out_whole(size: int) -> None:
    message = random.Random(size).randbytes(size)
    stream = framed(message)
    pieces = [stream[at : at + 300_000] for at in range(0, len(stream), 300_000)]

    assert read_all(FrameReader(LIMIT, "broker:9092"), Stream(*pieces).recv_into, 100) == [message]


def test_a_frame_that_is_only_announced_takes_little_memory() -> None:
    readers = [FrameReader(LIMIT, "broker:9092") for _ in range(100)]
    tracemalloc.start()
    try:
        for reader in readers:
            reader.read(Stream(struct.pack(">i", LIMIT), b"a beginning").recv_into)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert held < 100 * (FIRST_PIECE + 2_000)


def test_memory_grows_with_the_bytes_that_come() -> None:
    reader, came = FrameReader(LIMIT, "broker:9092"), bytes(1_000_000)
    tracemalloc.start()
    try:
        stream = Stream(struct.pack(">i", LIMIT) + came)
        for _ in range(10):
            reader.read(stream.recv_into)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert reader.progress == "1,000,000 of a frame's 104,857,600 bytes"
    assert held < GROWTH * len(came) + FIRST_PIECE


def test_a_long_frame_leaves_others_their_turn_while_there_is_more_to_read() -> None:
    message = bytes(10_000_000)
    stream = Stream(framed(message))
    reader = FrameReader(LIMIT, "broker:9092")

    assert reader.read(stream.recv_into) is None
    assert stream.has_more
    assert read_all(reader, stream.recv_into, 10) == [message]


def test_the_limit_can_be_changed_between_frames() -> None:
    reader = FrameReader(3, "broker:9092")
    stream = Stream(framed(b"abc") + framed(b"abcdef"))
    first = read_all(reader, stream.recv_into, 1)
    reader.max_size = 6

    assert first + read_all(reader, stream.recv_into, 1) == [b"abc", b"abcdef"]


@pytest.mark.fault("hostile bytes", "truncated frame")
@pytest.mark.parametrize(
    ("bytes_before_the_end", "in_frame", "progress"),
    [
        (b"", False, "0 of a size's 4 bytes"),
        (b"\0\0", True, "2 of a size's 4 bytes"),
        (b"\0\0\0\5", True, "0 of a frame's 5 bytes"),
        (b"\0\0\0\5abc", True, "3 of a frame's 5 bytes"),
    ],
)
def test_the_end_of_the_stream_tells_how_far_a_frame_had_come(bytes_before_the_end: bytes, in_frame: bool, progress: str) -> None:
    stream = Stream(*([bytes_before_the_end] if bytes_before_the_end else []), ends=True)
    reader = FrameReader(LIMIT, "broker:9092")
    if bytes_before_the_end:
        assert reader.read(stream.recv_into) is None
    with pytest.raises(EOFError):
        reader.read(stream.recv_into)

    assert (reader.in_frame, reader.progress) == (in_frame, progress)


@given(buffers=st.lists(st.binary(max_size=20), max_size=10), takes=st.lists(st.integers(1, 30), max_size=60))
def test_a_frame_goes_out_whole_however_little_is_taken_at_a_time(buffers: list[bytes], takes: list[int]) -> None:
    sink = Sink(*takes)
    writer = FrameWriter(buffers)

    assert writer.write(sink.send)
    assert writer.is_done
    assert sink.data == framed(b"".join(buffers))


def test_a_frame_that_is_not_taken_further_goes_on_where_it_stopped() -> None:
    sink = Sink(6, 0, 3, 0)
    writer = FrameWriter([b"abc", b"", bytearray(b"defg"), memoryview(b"hi")])

    assert not writer.write(sink.send)
    assert not writer.is_done
    assert sink.data == b"\0\0\0\x09ab"
    assert not writer.write(sink.send)
    assert writer.write(sink.send)
    assert sink.data == framed(b"abcdefghi")


def test_buffers_are_sent_from_where_they_lie() -> None:
    memory = bytearray(b"old")
    writer = FrameWriter([memory])
    memory[:] = b"new"
    sink = Sink()
    writer.write(sink.send)

    assert sink.data == framed(b"new")


def test_no_call_gets_more_buffers_than_sendmsg_takes() -> None:
    sink = Sink()
    buffers = [bytes([number % 256]) for number in range(2 * MAX_BUFFERS_PER_SEND + 7)]
    FrameWriter(buffers).write(sink.send)

    assert [len(call) for call in sink.calls] == [MAX_BUFFERS_PER_SEND, MAX_BUFFERS_PER_SEND, 8]
    assert sink.data == framed(b"".join(buffers))


def test_a_frame_can_announce_another_size_than_it_has() -> None:
    sink = Sink()
    writer = FrameWriter([b"abc"], announced=10)

    assert writer.write(sink.send)
    assert sink.data == struct.pack(">i", 10) + b"abc"


def test_a_message_too_large_for_a_frame_is_refused() -> None:
    megabytes = memoryview(bytearray(1 << 20))
    with pytest.raises(UsageError, match="2,147,483,648 bytes does not fit"):
        FrameWriter([megabytes] * 2048)
