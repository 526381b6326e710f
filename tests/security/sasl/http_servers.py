"""HTTP servers for tests: one that answers what it is told to, one that writes bytes as it likes, and a proxy."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """What a request is answered with."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Request:
    """What was asked. `path` is a URL where the server was asked as a proxy."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class HttpServer:
    """Answers each request with the next of `answers`, the last one again and again. `requests` has what was asked."""

    def __init__(self, answers: list[Answer], tls: ssl.SSLContext | None = None) -> None:
        self.answers = answers
        self.requests: list[Request] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                owner.requests.append(Request(self.command, self.path, dict(self.headers), self.rfile.read(length)))
                answer = owner.answers[min(len(owner.requests), len(owner.answers)) - 1]
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self.port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


@contextmanager
def http_server(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    server = HttpServer(list(answers), tls)
    try:
        yield server
    finally:
        server.stop()


def silent(connection: socket.socket) -> None:
    """For raw_server: reads until the client goes, and answers nothing."""
    while connection.recv(65536):
        pass


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Gives each connection to `serve`, in a thread; yields the URL. Its end closes what is open."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets, threads = list[socket.socket](), list[threading.Thread]()

    def served(connection: socket.socket) -> None:
        try:
            with connection:
                serve(connection)
        except OSError:
            pass  # the client has gone, or the test is over

    def accept() -> None:
        try:
            while True:
                connection, _ = listener.accept()
                open_sockets.append(connection)
                threads.append(threading.Thread(target=served, args=(connection,), daemon=True))
                threads[-1].start()
        except OSError:
            pass  # the listener is closed

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://localhost:{listener.getsockname()[1]}/token"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(30)
        for each in open_sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its client was first
        for thread in threads:
            thread.join(30)


def tunnel(heads: list[bytes], port: int) -> Callable[[socket.socket], None]:
    """An HTTP CONNECT proxy, whatever host it is asked for, to a port here. heads: takes what it is asked."""

    def serve(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        heads.append(head)
        with socket.create_connection(("127.0.0.1", port)) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n")
            back = threading.Thread(target=_pipe, args=(server, client), daemon=True)
            back.start()
            _pipe(client, server)
            back.join(30)

    return serve


def _pipe(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one of them has gone
