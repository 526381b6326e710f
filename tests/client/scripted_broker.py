"""A broker that says what a test tells it to, over real sockets, for what no real one can be made to say.

It has no thread: a test lets the client poll, then the broker receive and answer, and so decides the order of everything.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import APIS, RequestHeader, decode_request, encode_response

DEADLINE_S = 5.0


class Connection:
    """The broker's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(DEADLINE_S)
        self.socket = sock

    def has_bytes(self) -> bool:
        """Whether there is something to receive, or the client closed the connection."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self) -> tuple[RequestHeader, Any]:
        return decode_request(self.receive_frame())

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            if not got:
                raise EOFError("the client closed the connection")
            data += got
        return bytes(data)

    def answer(
        self, header: RequestHeader, body: Message, *, version: int | None = None, correlation_id: int | None = None
    ) -> None:
        """In the version that was asked in and with the request's own correlation id, unless a test wants it wrong."""
        self.socket.sendall(answer_bytes(header, body, version=version, correlation_id=correlation_id))

    def answer_versions(self, ranges: Mapping[int, tuple[int, int]] | None = None) -> RequestHeader:
        """Receive ApiVersions and answer it: all that is spoken here, or `ranges` by API key."""
        header, _ = self.receive()
        assert header.api_key == API_VERSIONS.key
        self.answer(header, versions(ranges))
        return header

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def is_closed_by_client(self) -> bool:
        """Waits for the end of the stream; what the client still sent before is dropped."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with a TCP RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class ScriptedBroker:
    """A listening socket on a free port, and the connections that a test accepted."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listener = socket.create_server((host, 0), backlog=16)
        self._listener.settimeout(DEADLINE_S)
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[Connection] = []

    @property
    def server(self) -> str:
        return f"{self.host}:{self.port}"

    def accept(self) -> Connection:
        sock, _ = self._listener.accept()
        self.connections.append(Connection(sock))
        return self.connections[-1]

    def has_caller(self) -> bool:
        """Whether somebody connected who was not accepted yet."""
        self._listener.settimeout(0)
        try:
            self.connections.append(Connection(self._listener.accept()[0]))
        except BlockingIOError:
            return False
        finally:
            self._listener.settimeout(DEADLINE_S)
        return True

    def stop_listening(self) -> None:
        """From now on a connection to this port is refused."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.close()


def answer_bytes(header: RequestHeader, body: Message, *, version: int | None = None, correlation_id: int | None = None) -> bytes:
    """The frame that answers a request."""
    said = header.api_version if version is None else version
    buffers = encode_response(
        APIS[header.api_key], said, header.correlation_id if correlation_id is None else correlation_id, body
    )
    return frame(b"".join(buffers))


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def versions(ranges: Mapping[int, tuple[int, int]] | None = None, error_code: int = 0) -> ApiVersionsResponse:
    spoken = {key: (api.min_version, api.max_version) for key, api in APIS.items()} if ranges is None else ranges
    return ApiVersionsResponse(error_code=error_code, api_keys=api_keys(spoken))


def api_keys(ranges: Mapping[int, tuple[int, int]]) -> Sequence[ApiVersion]:
    return [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
