"""Where a user's callback runs nothing may wait: it may hold up the very thread that would answer."""

from __future__ import annotations

import threading

# The deadline of who must not wait: the sender's thread, which everybody else waits for, and callbacks.
NO_WAIT = 0.0


class _Callbacks(threading.local):
    """`with callbacks:` stands around each call of one; the depth is this thread's, for a callback may send and fail itself."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


callbacks = _Callbacks()


def in_callback() -> bool:
    """Whether this thread is inside a delivery callback or an interceptor's on_acknowledgement."""
    return callbacks.depth > 0
