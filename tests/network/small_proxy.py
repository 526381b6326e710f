"""A small SOCKS5 and HTTP CONNECT proxy on the loopback address, for tests where no other one is installed."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

REFUSED: Final = 5
HOST_UNREACHABLE: Final = 4


class SmallProxy:
    """A proxy that serves each connection in a thread, until it is closed.

    Attributes:
        scheme: what it speaks.
        address: the host and port that it listens on.
        targets: each host and port that it was asked to connect to, the host as it was written.
    """

    def __init__(self, scheme: str, user: str = "", password: str = "") -> None:
        self.scheme = scheme
        self._serve = self._http if scheme == "http" else self._socks
        self._login = (user, password)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.targets: list[tuple[str, int]] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        # A socket that another thread waits on ends that wait when it is shut down, not when it is closed.
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):  # its peer was first
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for sock in (self._listener, *self._sockets):
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                thread = threading.Thread(target=self._run, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):  # an end has gone
            server = self._serve(client)
            if server is not None:
                self._sockets.append(server)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join(60)
        with contextlib.suppress(OSError):  # it has gone
            client.shutdown(socket.SHUT_RDWR)

    def _connect(self, host: str, port: int) -> socket.socket:
        self.targets.append((host, port))
        return socket.create_connection((host, port), timeout=None)

    def _socks(self, client: socket.socket) -> socket.socket | None:
        method = 2 if self._login[0] else 0
        if method not in _exactly(client, _exactly(client, 2)[1]):
            client.sendall(b"\x05\xff")
            return None
        client.sendall(bytes([5, method]))
        if method:
            login = tuple(_exactly(client, length).decode() for length in _lengths(client))
            client.sendall(b"\x01" + bytes([login != self._login]))
            if login != self._login:
                return None
        kind = _exactly(client, 4)[3]
        if kind == 3:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        else:
            family = socket.AF_INET if kind == 1 else socket.AF_INET6
            host = socket.inet_ntop(family, _exactly(client, 4 if kind == 1 else 16))
        (port,) = struct.unpack(">H", _exactly(client, 2))
        try:
            server = self._connect(host, port)
        except OSError as error:
            code = HOST_UNREACHABLE if isinstance(error, socket.gaierror) else REFUSED
            client.sendall(bytes([5, code, 0, 1]) + bytes(6))
            return None
        # A name as the bound address is rare, and allowed.
        client.sendall(b"\x05\x00\x00\x03\x05bound\x00\x01")
        return server

    def _http(self, client: socket.socket) -> socket.socket | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(client, 1)
        request, *headers = head.decode().splitlines()
        login = base64.b64encode(":".join(self._login).encode()).decode()
        if self._login[0] and f"Proxy-Authorization: Basic {login}" not in headers:
            client.sendall(b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n')
            return None
        host, _, port = request.split()[1].rpartition(":")
        try:
            server = self._connect(host.strip("[]"), int(port))
        except OSError:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return None
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: a small proxy\r\n\r\n")
        return server


def _lengths(client: socket.socket) -> Iterator[int]:
    """The lengths of user and password, each read when the one before has been read."""
    yield _exactly(client, 2)[1]
    yield _exactly(client, 1)[0]


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = sock.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # an end has gone
        while chunk := source.recv(65_536):
            target.sendall(chunk)
    for sock in (source, target):
        with contextlib.suppress(OSError):  # it has gone
            sock.shutdown(socket.SHUT_RDWR)
