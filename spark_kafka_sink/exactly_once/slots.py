"""Transactional ids that only this process ever uses, and no two attempts of a batch."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds

# Queries and jobs that a worker remembers. A forgotten one that comes back gets a new token, so nothing is ever used twice.
MAX_QUERIES = 64


@dataclass(slots=True)
class _Slots:
    """token: this process's for one query. batches: the last batch that used each slot."""

    token: str = field(default_factory=lambda: os.urandom(8).hex())
    batches: list[int] = field(default_factory=list)

    def take(self, batch: int) -> int:
        """A slot whose last batch is over: Spark begins a batch only after the commit of the one before. Attempts of the same
        batch never share one, as an attempt's transaction may be the one that is committed."""
        for slot, last in enumerate(self.batches):
            if last < batch:
                self.batches[slot] = batch
                return slot
        self.batches.append(batch)
        return len(self.batches) - 1


class Slots:
    """The ids of this process's tasks.

    Processes: pyspark.daemon forks workers, and a child must not go on with its parent's tokens. Threads: any may call.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._queries: OrderedDict[TransactionalIds, _Slots] = OrderedDict()

    def take(self, ids: TransactionalIds, batch: int) -> str:
        """A transactional id for one attempt to write a share of the batch."""
        if self._pid != os.getpid():
            self._reset()  # forked by something that knows no register_at_fork
        with self._lock:
            slots = self._queries.setdefault(ids, _Slots())
            self._queries.move_to_end(ids)
            if len(self._queries) > MAX_QUERIES:
                self._queries.popitem(last=False)
            return ids.for_slot(slots.token, slots.take(batch))


slots = Slots()
