"""Finds free ports of the loopback address."""

from __future__ import annotations

import random
import socket

# Below every system's ephemeral range: a port of that range may become the source port of some client's connection while its
# broker is down, and a client that connects to a port nobody listens on can there even end up connected to itself.
LOWEST, HIGHEST = 20_000, 32_000


def free_ports(count: int) -> list[int]:
    """Returns `count` different unused ports. They are not reserved, so use them soon."""
    held: list[socket.socket] = []
    try:
        for port in random.SystemRandom().sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
            if len(held) == count:
                break
            candidate = socket.socket()
            held.append(candidate)
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                held.pop().close()
        if len(held) < count:
            raise OSError(f"fewer than {count} free ports between {LOWEST} and {HIGHEST} on 127.0.0.1")
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()
