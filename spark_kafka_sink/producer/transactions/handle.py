"""An open transaction as plain values that another process needs to end it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby


@dataclass(frozen=True, slots=True)
class TransactionHandle:
    """An open transaction. Any process with the handle can commit or abort it. Handles can be pickled.

    Attributes:
        transactional_id, producer_id, epoch: identify the transaction at its coordinator. Exactly one transaction has this epoch.
        transaction_version: 1, or 2 (KIP-890). It selects the EndTxn version for every attempt to end the transaction: v5 for
            version 2, v4 or lower for version 1. EndTxn v5 returns INVALID_TXN_STATE for a transaction that v4 has committed, as
            if it had been aborted.
        records: number of acknowledged records.
        partitions: partitions written to, by topic, as in ("events", "0-7,9").
        topic_ids: the id that each of these topics had before records were sent to it; none from brokers without topic ids.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    records: int
    partitions: tuple[tuple[str, str], ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer id {self.producer_id}, epoch {self.epoch})"


def partition_ranges(partitions: Iterable[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
    """Returns (topic, partition) pairs in short form: 1,000 partitions of 200 tasks must fit a record of 1 MB."""
    by_topic = groupby(sorted(set(partitions)), key=lambda each: each[0])
    return tuple((topic, ",".join(_ranges([number for _, number in group]))) for topic, group in by_topic)


def covers(partitions: tuple[tuple[str, str], ...], others: tuple[tuple[str, str], ...]) -> bool:
    """Returns whether all of `others` are among `partitions`, both as made by `partition_ranges`."""
    if partitions == others:
        return True
    known = {topic: partition_numbers(text) for topic, text in partitions}
    return all(partition_numbers(text) <= known.get(topic, frozenset()) for topic, text in others)


def partition_numbers(text: str) -> frozenset[int]:
    """Returns the partitions of a topic in the short form of `partition_ranges`."""
    ends = (run.partition("-") for run in text.split(","))
    return frozenset(number for first, _, last in ends for number in range(int(first), int(last or first) + 1))


def _ranges(numbers: list[int]) -> list[str]:
    runs = groupby(enumerate(numbers), key=lambda each: each[1] - each[0])
    return [_range([number for _, number in run]) for _, run in runs]


def _range(run: list[int]) -> str:
    return f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])
