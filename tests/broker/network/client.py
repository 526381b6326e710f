"""A client of a broker that does what a test says: whole requests, or any bytes, over a real socket."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import decode_response, encode_request

TIMEOUT_S = 60.0


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def request_frame(key: ApiKey, version: int, body: Message, *, correlation_id: int = 1) -> bytes:
    return framed(b"".join(encode_request(ALL_APIS[key], version, correlation_id, "test", body)))


def api_versions_frame(correlation_id: int = 1) -> bytes:
    return request_frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("test", "1.0"), correlation_id=correlation_id)


class Client:
    """One connection. Every wait ends after `TIMEOUT_S` with a TimeoutError."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise

    @classmethod
    def at(cls, bootstrap_servers: str) -> Self:
        """Connected to the first of them."""
        host, port = bootstrap_servers.split(",", maxsplit=1)[0].rsplit(":", 1)
        return cls(int(port), host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next frame's message. Raises EOFError where the broker has closed the connection."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            if not got:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += got
        return bytes(data)

    def receive_response(self, key: ApiKey, version: int) -> tuple[int, Message]:
        """Correlation id and body."""
        return decode_response(ALL_APIS[key], version, self.receive())

    def ask(self, key: ApiKey, version: int, body: Message) -> Message:
        self.send(request_frame(key, version, body))
        return self.receive_response(key, version)[1]

    def api_versions(self, version: int = 3) -> ApiVersionsResponse:
        answer = self.ask(ApiKey.API_VERSIONS, version, ApiVersionsRequest("test", "1.0"))
        assert isinstance(answer, ApiVersionsResponse)
        return answer

    def is_closed_by_broker(self) -> bool:
        """Waits for that; False where the broker sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
