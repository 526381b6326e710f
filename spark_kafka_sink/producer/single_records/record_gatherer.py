"""Single records of one topic, put together until there are enough of them to be worth columns."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.single_records.gathered import Gathered
from spark_kafka_sink.producer.single_records.record_future import RecordFuture

if TYPE_CHECKING:
    from spark_kafka_sink.client.cluster import Cluster
    from spark_kafka_sink.producer.scopes.send_scope import RecordScope

# Rows that make an append worth its fixed cost of some 0.5 ms.
MAX_ROWS = 2_000
MAX_BYTES = 512 * 1024
# Fewer where many topics gather. A row takes some 300 bytes beside its own.
ALL_ROWS = 100_000
MIN_ROWS = 100
MIN_BYTES = 16 * 1024


class Enough:
    """How many rows or bytes of a topic are appended at once. One for all of a producer's topics: what is gathered is not counted
    in buffer.memory, and shall not be more than that again. Written under the lock of GatheredRecords."""

    __slots__ = ("_memory", "rows", "size")

    def __init__(self, buffer_memory: int) -> None:
        self._memory = buffer_memory
        self.share(1)

    def share(self, topics: int) -> None:
        self.rows = max(MIN_ROWS, min(MAX_ROWS, ALL_ROWS // topics))
        self.size = max(MIN_BYTES, min(MAX_BYTES, self._memory // topics))


class RecordGatherer:
    """Threads: any may add. `lock` guards the attributes below `draining`. Whoever takes rows out holds `draining` until they are
    in batches, which keeps their order, and takes `lock` only after it."""

    def __init__(self, scope: RecordScope, enough: Enough) -> None:
        self.scope = scope
        self.lock = Lock()
        self.draining = Lock()
        self.gathered = Gathered()
        self.taken: Gathered | None = None  # by who holds `draining`; what an interrupt left there is taken again
        self.closed_by: KafkaSinkError | None = None  # no more rows are added, and why
        self.ended_by: KafkaSinkError | None = None  # no more batches are made, and why
        self.known_in: Cluster | None = None  # the metadata in which the topic was last found; any thread may set it
        self._enough = enough

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
        future: RecordFuture,
        size: int,
        callback: bool,
    ) -> tuple[bool, bool]:
        """One more row, of `size` bytes, about. Whether it is the first that waits here, and whether there are enough now."""
        with self.lock:
            if self.closed_by is not None:
                raise self.closed_by.with_traceback(None)
            gathered = self.gathered
            futures = gathered.futures
            first = not futures
            if first:
                gathered.since_ms = monotonic_ms()
            if callback:
                gathered.callbacks = True
            try:
                if partition is not None or headers or gathered.partitions or gathered.headers:
                    gathered.place(partition, headers)
                gathered.values.append(value)
                gathered.keys.append(key)
                gathered.timestamps.append(timestamp)
                futures.append(future)
            except BaseException:  # an interrupt must not leave half of a row, which would shift all that come after it
                gathered.cut(len(futures))
                raise
            gathered.size = total = gathered.size + size
            return first, len(futures) >= self._enough.rows or total >= self._enough.size

    def is_full(self) -> bool:
        gathered = self.gathered
        return len(gathered.futures) >= self._enough.rows or gathered.size >= self._enough.size

    def is_idle(self) -> bool:
        """Whether no row is here or on its way from here into a batch."""
        with self.lock:  # else `put_back` between two looks: the rows would be seen in neither place
            return not self.gathered.futures and self.taken is None and not self.draining.locked()

    def unsent(self) -> int:
        """How many rows are in no batch."""
        with self.lock:
            return len(self.gathered) + (0 if self.taken is None else len(self.taken.pending()))

    def take(self) -> Gathered:
        """All that was gathered. `draining` is held; `put_back` or `settled` comes next."""
        with self.lock:
            if self.taken is not None:
                left = self.taken.pending()
                left.extend(self.gathered)
                self.gathered = left
            self.taken, self.gathered = self.gathered, Gathered()
            return self.taken

    def settled(self) -> None:
        """What was taken is in batches, or failed. `draining` is held."""
        self.taken = None

    def put_back(self, gathered: Gathered) -> KafkaSinkError | None:
        """In front of what came meanwhile, unless nobody will ever take it again: why. `draining` is held."""
        with self.lock:
            if self.ended_by is None:
                gathered.extend(self.gathered)
                self.gathered, self.taken = gathered, None
            return self.ended_by

    def close(self, error: KafkaSinkError) -> None:
        """Take no more rows."""
        with self.lock:
            self.closed_by = self.closed_by or error

    def end(self, error: KafkaSinkError) -> Gathered:
        """Nobody makes batches any more. Returned are the rows that nobody has taken."""
        with self.lock:
            self.closed_by = self.closed_by or error
            self.ended_by = error
            rest, self.gathered = self.gathered, Gathered()
            return rest
