"""The end of a program that has not closed its producers: what is on its way is waited for a little, and told."""

from __future__ import annotations

import atexit
import logging
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger(__name__)

# Long enough for brokers that are there; a program that ends must not hang because of those that are not.
TIMEOUT_S = 5.0


class Closable(Protocol):
    """What is asked of a producer."""

    def unfinished(self) -> int: ...

    def close(self, timeout: float | None = None) -> None: ...


_open: WeakSet[Closable] = WeakSet()


def close_at_exit(producer: Closable) -> None:
    """Java's producer loses in silence what was not sent when the program ends, as its daemon thread ends with it."""
    if not _open:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _open.add(producer)


def _close_all() -> None:
    for producer in list(_open):
        unfinished = producer.unfinished()
        if not unfinished:
            continue
        log.error(
            "the program ends with %d records not acked, in a producer that was not closed: use it in a `with`, or call close();"
            " waiting %.0f s for them",
            unfinished,
            TIMEOUT_S,
        )
        try:
            producer.close(TIMEOUT_S)
        except Exception as error:
            log.error("%s", error)
