"""Timers of groups, by name, that can be moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.broker.group.effects import Timeout, TimerKey, Wish
from spark_kafka_sink.broker.timer import Timer, TimerTask


@dataclass(slots=True, eq=False)
class _Deadline:
    due_ms: float
    timeout: Timeout
    task: TimerTask


class Deadlines:
    """The coordinator's lock guards this. `due` is called on the timer's thread, without the lock, with a deadline's group, key
    and itself; `taken` says then, under the lock, whether it still holds.
    """

    def __init__(self, timer: Timer, due: Callable[[str, TimerKey], None]) -> None:
        self._timer = timer
        self._due = due
        self._by_group: dict[str, dict[TimerKey, _Deadline]] = {}

    def set(self, group_id: str, key: TimerKey, wish: Wish | None) -> None:
        """None cancels."""
        group = self._by_group.setdefault(group_id, {})
        known = group.get(key)
        if wish is None:
            self._cancel(group_id, key)
            return
        due_ms = self._timer.now_ms() + wish.delay_ms
        # Every heartbeat moves a deadline of its member further away: the task that is there looks again when it is due, and
        # a timer need not keep a cancelled task of 45 s for each.
        if known is not None and known.task.due_ms <= due_ms:
            known.due_ms, known.timeout = due_ms, wish.timeout
            return
        if known is not None:
            known.task.cancel()
        group[key] = _Deadline(due_ms, wish.timeout, self._armed(group_id, key, wish.delay_ms))

    def taken(self, group_id: str, key: TimerKey) -> Timeout | None:
        """What is due now, once; None where it was moved or cancelled meanwhile."""
        known = self._by_group.get(group_id, {}).get(key)
        if known is None:
            return None
        left_ms = known.due_ms - self._timer.now_ms()
        if left_ms > 0:
            if known.task.is_cancelled:
                known.task = self._armed(group_id, key, left_ms)
            return None
        self._cancel(group_id, key)
        return known.timeout

    def cancel_all(self, group_id: str) -> None:
        for key in list(self._by_group.get(group_id, {})):
            self._cancel(group_id, key)

    def _armed(self, group_id: str, key: TimerKey, delay_ms: float) -> TimerTask:
        return self._timer.after(delay_ms, lambda: self._due(group_id, key))

    def _cancel(self, group_id: str, key: TimerKey) -> None:
        group = self._by_group[group_id]
        known = group.pop(key, None)
        if known is not None:
            known.task.cancel()
        if not group:
            del self._by_group[group_id]
