"""Where the next records without a key should go, by what waits for each partition already (KIP-794): pure numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LoadStats:
    """partitions: those to choose from. cumulative: running sum of their weights, shape (len(partitions),)."""

    partitions: Sequence[int]
    cumulative: NDArray[np.int64]

    def partition(self, at: float) -> int:
        """The partition at 0 <= `at` < 1 of all weights together."""
        number = int(at * int(self.cumulative[-1]))
        return self.partitions[int(np.searchsorted(self.cumulative, number, side="right"))]


def load_stats(partitions: Sequence[int], queue_sizes: Sequence[int], count: int) -> LoadStats | None:
    """The weight of a partition is the longest queue less its own, plus 1 (BuiltInPartitioner.updatePartitionLoadStats).

    partitions: those of the topic's `count` that can be sent to. queue_sizes: batches that wait, for each of them. None: there is
    nothing to tell them apart by, so each is as good as another.
    """
    if not partitions or count < 2 or (len(partitions) == count and len(set(queue_sizes)) == 1):
        return None
    sizes = np.array(queue_sizes, np.int64)
    return LoadStats(partitions, np.cumsum(sizes.max() + 1 - sizes))
