"""An address where connecting neither succeeds nor fails."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def black_hole() -> Iterator[tuple[str, int]]:
    """The host and port of a listener whose queue is full: the system drops what else would connect, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        select.select([], fillers[:1], [], 5)
        # The first stands in the queue; the last must be one that got no answer, or the queue holds more than we thought.
        assert not select.select([], fillers[-1:], [], 0.05)[1], "a listener with a full queue took a connection"
        try:
            yield address
        finally:
            for filler in fillers:
                filler.close()
