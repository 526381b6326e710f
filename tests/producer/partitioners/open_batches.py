"""What waits in an accumulator, as a test says."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class OpenBatches:
    """open: bytes in the open batch of each partition that has one. waiting: batches that wait, by partition; None: unknown."""

    open: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] | None = None
    asked: int = 0

    def queue_sizes(self, topic: str, count: int) -> tuple[list[int], list[int]] | None:
        self.asked += 1
        return None if self.waiting is None else (list(self.waiting), list(self.waiting.values()))

    def open_size(self, topic: str, partition: int) -> int | None:
        return self.open.get(partition)

    def open_sizes(self, topic: str) -> dict[int, int]:
        return dict(self.open)

    def append(self, partitions: list[int], size: int, batch_size: int) -> None:
        """Rows of so many bytes each."""
        for partition in partitions:
            before = self.open.get(partition, batch_size)
            self.open[partition] = size if before + size > batch_size else before + size
