"""The deadline of a call of send() or append(), for serializers that ask a registry."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Call(threading.local):
    deadline: float | None = None


_call = _Call()


@contextmanager
def call_deadline(limit_s: float) -> Iterator[None]:
    """Limits how long serializers may wait in this thread, all of them together.

    Args:
        limit_s: time limit from now, in s.
    """
    before, _call.deadline = _call.deadline, time.monotonic() + limit_s
    try:
        yield
    finally:
        _call.deadline = before


def call_time_left_s(limit_s: float) -> float:
    """Returns how long a serializer may wait now, in s.

    Args:
        limit_s: the most that it waits outside of a producer's calls, too.
    """
    return limit_s if _call.deadline is None else min(limit_s, _call.deadline - time.monotonic())
