"""A port whose connections a test serves byte by byte, for what no broker would do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def raw_listener(serve_one: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Accepts connections one after another, and closes each when `serve_one` returns. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # the listener is closed
                    return
                with connection:
                    connection.settimeout(60)
                    serve_one(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
