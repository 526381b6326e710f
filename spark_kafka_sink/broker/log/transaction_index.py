"""A segment's aborted transactions, in the order of their markers: Kafka's TransactionIndex, held in memory and written whole."""

from __future__ import annotations

import struct
from typing import NamedTuple

from spark_kafka_sink.broker.log.log_types import AbortedTransaction

_ENTRY = struct.Struct(">hqqqq")  # version, then AbortedTxn's fields
_VERSION = 0


class AbortedTxn(NamedTuple):
    """`last_offset` is the marker's; `last_stable_offset` is that of the log once the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Of all aborted transactions whose marker is in the segment."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._aborted: list[AbortedTxn] = []

    def __len__(self) -> int:
        return len(self._aborted)

    def append(self, aborted: AbortedTxn) -> None:
        self._aborted.append(aborted)

    def all(self) -> list[AbortedTxn]:
        return list(self._aborted)

    def collect(self, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Adds those with records between the two offsets; whether no later segment can have more of them."""
        for aborted in self._aborted:
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
                found.append(AbortedTransaction(aborted.producer_id, aborted.first_offset))
            if aborted.last_stable_offset >= upper_bound:
                return True
        return False

    def clear(self) -> None:
        self._aborted.clear()

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *aborted) for aborted in self._aborted)

    def load(self, data: bytes) -> bool:
        """Takes over a file's content; False when it cannot be this segment's index."""
        if len(data) % _ENTRY.size:
            return False
        entries = list(_ENTRY.iter_unpack(data))
        aborted = [AbortedTxn(*fields) for _, *fields in entries]
        if any(version != _VERSION for version, *_ in entries) or any(txn.last_offset < self.base_offset for txn in aborted):
            return False
        self._aborted = aborted
        return True
