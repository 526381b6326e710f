"""Since when a broker has taken nothing of what waits for it (RecordAccumulator.NodeLatencyStats)."""

from __future__ import annotations


class NodeLatencies:
    """For each node when it was last found to have something to be sent, and when it could last be sent to; monotonic ms.

    The sender's thread writes, any thread reads: a node's pair is replaced as a whole. Without a timeout nothing is kept.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._times: dict[int, tuple[int, int]] = {}

    def update(self, node: int, now_ms: int, *, can_send: bool) -> None:
        """The node has something to be sent, which can be sent now or not."""
        if self._timeout_ms > 0:
            sent_ms = now_ms if can_send else self._times.get(node, (now_ms, now_ms))[1]
            self._times[node] = (now_ms, sent_ms)

    def is_slow(self, node: int) -> bool:
        """Whether something has been waiting for the node for more than the timeout."""
        ready_ms, sent_ms = self._times.get(node, (0, 0))
        return ready_ms - sent_ms > self._timeout_ms
