"""Finds free ports of the loopback address."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

# Below every system's ephemeral range: a port of that range may become the source port of some client's connection while its
# broker is down, and a client that connects to a port nobody listens on can there even end up connected to itself.
LOWEST, HIGHEST = 20_000, 32_000
KEPT: Final = 500
"""How many ports a process keeps other processes of tests from choosing: its latest, until it ends."""

_lock = Lock()
_kept: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """Returns `count` different unused ports. Other programs may take them, so use them soon.

    No other process of tests chooses them before this one ends or has chosen KEPT more: a broker takes seconds until it listens,
    and does not listen while it is down.
    """
    found: list[int] = []
    with _lock:
        for port in random.SystemRandom().sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
            if len(found) == count:
                return found
            if port not in _kept and _is_unused(port) and _keep(port):
                found.append(port)
    if len(found) < count:
        raise OSError(f"fewer than {count} free ports between {LOWEST} and {HIGHEST} on 127.0.0.1")
    return found


def _is_unused(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _keep(port: int) -> bool:
    """Locks the byte of the port in a file that all processes share, which the system unlocks when this one ends."""
    try:
        fcntl.lockf(_shared_file(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _kept.append(port)
    if len(_kept) > KEPT:
        fcntl.lockf(_shared_file(os.getpid()), fcntl.LOCK_UN, 1, _kept.popleft())
    return True


@cache
def _shared_file(_process: int) -> int:
    """Opens it, once in each process."""
    return os.open(Path(tempfile.gettempdir()) / f"spark-kafka-sink-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
