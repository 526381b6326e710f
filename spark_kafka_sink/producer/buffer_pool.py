"""The bound of buffer.memory: fixed chunks that batches are chains of, handed out first come first served."""

from __future__ import annotations

import threading
import time
from collections import deque

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, UsageError


class _Waiter:
    """An allocation that waits; `chunks` is set, under the pool's lock, by whoever serves it, and `done` after that."""

    __slots__ = ("chunks", "done", "needed")

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.chunks: list[memoryview] | None = None
        self.done = threading.Event()


class BufferPool:
    """`total` bytes of memory in chunks of `chunk_size` bytes (Kafka's BufferPool, whose one buffer per batch is a chunk here).

    Chunks are made when first needed and kept in a free list. Any thread may call anything; `_lock` guards every attribute and is
    never held while memory is made or a waiter waits. Freed chunks are handed to the waiters themselves, oldest first, so
    nobody overtakes: not a newcomer, not a small request behind a large one.
    """

    def __init__(self, total: int, chunk_size: int) -> None:
        self.total = total
        self.chunk_size = chunk_size
        self.capacity = total // chunk_size  # in chunks
        self._lock = threading.Lock()
        self._free: list[memoryview] = []
        self._made = 0  # chunks in the free list or with a caller
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def available(self) -> int:
        """Bytes nobody holds, made or not."""
        with self._lock:
            return self._available_chunks() * self.chunk_size

    def queued(self) -> int:
        """How many allocations wait for memory."""
        with self._lock:
            return len(self._waiters)

    def try_allocate(self, n_chunks: int) -> list[memoryview] | None:
        """`n_chunks` chunks at once, contents unspecified, or None when there are not as many or others wait for them.

        Raises RecordTooLargeError for more than the whole pool, UsageError after close.
        """
        self._check_fits(n_chunks)
        with self._lock:
            chunks = self._take_now(n_chunks)
        return None if chunks is None else self._fill(chunks, n_chunks)

    def allocate(self, n_chunks: int, deadline_s: float) -> list[memoryview]:
        """`n_chunks` chunks, waiting for them until `deadline_s` on time.monotonic's clock.

        Raises as `try_allocate` does, UsageError when the pool is closed meanwhile, and BufferExhaustedError at the deadline.
        """
        self._check_fits(n_chunks)
        begun = time.monotonic()
        with self._lock:
            chunks = self._take_now(n_chunks)
            if chunks is None:
                waiter = _Waiter(n_chunks)
                self._waiters.append(waiter)
        if chunks is None:
            chunks = self._wait(waiter, begun, deadline_s)
        return self._fill(chunks, n_chunks)

    def deallocate(self, chunks: list[memoryview]) -> None:
        """Give chunks back, each the very object that was allocated, and serve who waits. Harmless after close."""
        with self._lock:
            if len(self._free) + len(chunks) > self._made:
                raise UsageError("buffer pool: more chunks were given back than were allocated")
            self._put_back(chunks)

    def close(self) -> None:
        """Wakes every waiter with UsageError and lets the free memory go; chunks still held go when they are given back."""
        with self._lock:
            self._closed = True
            self._made -= len(self._free)
            self._free.clear()
            for waiter in self._waiters:
                waiter.done.set()
            self._waiters.clear()

    def _available_chunks(self) -> int:
        return self.capacity - self._made + len(self._free)

    def _take_now(self, n_chunks: int) -> list[memoryview] | None:
        self._check_open()
        if self._waiters or n_chunks > self._available_chunks():
            return None
        return self._take(n_chunks)

    def _take(self, n_chunks: int) -> list[memoryview]:
        """Free chunks (the latest freed: still cached), up to `n_chunks`; the rest is counted as made, for `_fill` to make."""
        chunks = self._free[-n_chunks:] if n_chunks else []
        del self._free[len(self._free) - len(chunks) :]
        self._made += n_chunks - len(chunks)
        return chunks

    def _fill(self, chunks: list[memoryview], n_chunks: int) -> list[memoryview]:
        """Make the chunks that `_take` only counted."""
        try:
            while len(chunks) < n_chunks:
                chunks.append(memoryview(bytearray(self.chunk_size)))
        except MemoryError:
            with self._lock:
                self._made -= n_chunks - len(chunks)
                self._put_back(chunks)
            raise
        return chunks

    def _put_back(self, chunks: list[memoryview]) -> None:
        if self._closed:
            self._made -= len(chunks)
        else:
            self._free.extend(chunks)
            self._serve()

    def _serve(self) -> None:
        """Hand over to the oldest waiters what is there for them; stops at the first that must wait on."""
        while self._waiters and self._waiters[0].needed <= self._available_chunks():
            waiter = self._waiters.popleft()
            waiter.chunks = self._take(waiter.needed)
            waiter.done.set()

    def _wait(self, waiter: _Waiter, begun: float, deadline_s: float) -> list[memoryview]:
        try:
            waiter.done.wait(min(max(deadline_s - begun, 0), threading.TIMEOUT_MAX))
        except BaseException:  # an interrupt must not keep the place in the queue, nor the memory
            with self._lock:
                self._leave(waiter)
            raise
        with self._lock:
            if waiter.chunks is not None:  # also when it was served at the very deadline
                return waiter.chunks
            self._check_open()
            ahead = self._leave(waiter)
            free = self._available_chunks() * self.chunk_size
        raise BufferExhaustedError(
            f"buffer.memory: {waiter.needed * self.chunk_size} bytes did not become free within "
            f"{(time.monotonic() - begun) * 1000:.0f} ms ({free} of {self.total} bytes are free, {ahead} appends wait before); "
            "the brokers take records more slowly than they come: see to them, or raise buffer.memory or max.block.ms",
            option="buffer.memory",
        )

    def _leave(self, waiter: _Waiter) -> int:
        """Forget a waiter, whatever became of it meanwhile; returns how many stood before it."""
        if waiter.chunks is not None:
            self._made -= waiter.needed - len(waiter.chunks)
            self._put_back(waiter.chunks)
            return 0
        if waiter not in self._waiters:  # closed
            return 0
        ahead = self._waiters.index(waiter)
        self._waiters.remove(waiter)
        self._serve()
        return ahead

    def _check_fits(self, n_chunks: int) -> None:
        if n_chunks > self.capacity:
            raise RecordTooLargeError(
                f"buffer.memory: {n_chunks * self.chunk_size} bytes are needed at once, but all of it is {self.total}: raise it",
                option="buffer.memory",
            )

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("buffer pool: the producer was closed while records were still appended; append before close")
