"""Opens many connections to one broker. Most are idle; each of the others always has one small Produce in flight."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from spark_kafka_sink.protocol.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.messages import encode_request
from spark_kafka_sink.records.small_batch import NewRecord, small_batch

IDLE, BUSY = 500, 50
VALUE_BYTES = 1024
_VERSION = 12  # the last version that identifies topics by name
_DEADLINE_S = 10.0


@dataclass(slots=True)
class _Connection:
    """A connection that sends the next request as soon as it gets an answer."""

    socket: socket.socket
    missing: int = 0
    size: bytes = b""
    answered: int = 0

    def read(self) -> bool:
        """Reads what has arrived. Returns whether an answer is complete."""
        if self.missing == 0:
            self.size += self.socket.recv(4 - len(self.size))
            if len(self.size) < 4:
                return False
            (self.missing,) = struct.unpack(">i", self.size)
            self.size = b""
        data = self.socket.recv(self.missing)
        if not data:
            raise ConnectionError("the broker closed a busy connection")
        self.missing -= len(data)
        return self.missing == 0


def answers_by_connection(address: str, topic: str, partitions: int, requests: int) -> tuple[list[int], float]:
    """Sends `requests` requests over the busy connections while the idle ones are open.

    Returns the number of answers per connection, and the seconds for all of them.
    """
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(_connected(address))
        busy = [_Connection(stack.enter_context(_connected(address))) for _ in range(BUSY)]
        frames = [_produce(topic, number % partitions) for number in range(partitions)]
        started = time.monotonic()
        _drive(busy, frames, requests)
        seconds = time.monotonic() - started
    return [connection.answered for connection in busy], seconds


def _drive(busy: Sequence[_Connection], frames: Sequence[bytes], requests: int) -> None:
    with selectors.DefaultSelector() as selector:
        for number, connection in enumerate(busy):
            selector.register(connection.socket, selectors.EVENT_READ, (connection, frames[number % len(frames)]))
            connection.socket.sendall(frames[number % len(frames)])
        while requests > 0:
            events = selector.select(_DEADLINE_S)
            if not events:
                raise TimeoutError(f"no busy connection was answered for {_DEADLINE_S:g} s")
            for key, _ in events:
                connection, frame = key.data
                if connection.read():
                    connection.answered += 1
                    requests -= 1
                    connection.socket.sendall(frame)


@contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_DEADLINE_S) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield made


def _produce(topic: str, partition: int) -> bytes:
    batch = small_batch([NewRecord(None, b"v" * VALUE_BYTES, timestamp=time.time_ns() // 1_000_000)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, [batch])])
    message = b"".join(encode_request(PRODUCE, _VERSION, 1, "connections", ProduceRequest(acks=1, topic_data=[data])))
    return struct.pack(">i", len(message)) + message
