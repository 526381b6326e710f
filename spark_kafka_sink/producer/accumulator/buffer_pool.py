"""Enforces buffer.memory: fixed-size chunks, allocated in FIFO order, that hold batches or stand for other memory of theirs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, UsageError


class Chunk:
    """Permission to hold `size` bytes: in its own memory, allocated on first use, or in other memory (`lend`)."""

    __slots__ = ("_memory", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory: memoryview | None = None

    @property
    def memory(self) -> memoryview:
        """The chunk's memory, with unspecified contents. Raises MemoryError."""
        if self._memory is None:
            self._memory = memoryview(bytearray(self.size))
        return self._memory

    def lend(self) -> None:
        """Releases the chunk's own memory, because other memory takes its place."""
        self._memory = None


class SharedChunks:
    """Chunks that stand for a block shared by several batches. The last of its `users` returns them to the pool."""

    __slots__ = ("chunks", "users")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.users = 0

    def lend(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            chunk._memory = None  # as in Chunk.lend; an append has tens of chunks
        self.chunks = chunks


class _Waiter:
    """A waiting allocation. The thread that serves it sets `chunks`, under the pool's lock, and then tells `done`."""

    __slots__ = ("chunks", "done", "needed")

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.chunks: list[Chunk] | None = None
        self.done = SimpleQueue[None]()  # whose calls are single steps for an interrupt, unlike those of an Event


class BufferPool:
    """`total` bytes of memory in chunks of `chunk_size` bytes (Kafka's BufferPool, whose buffer per batch is a chunk here).

    Chunks are made when first needed and then kept in a free list with their memory. Any thread may call anything; `_lock` guards
    all attributes, and the users of shared chunks once there are two, and is never held during a wait. Freed chunks are passed
    directly to the waiters, oldest first, so no request overtakes another.
    """

    def __init__(
        self,
        total: int,
        chunk_size: int,
        *,
        on_wait: Callable[[int], None] = lambda waited_ns: None,
        outages: Callable[[], str] = lambda: "",
    ) -> None:
        """on_wait: receives the duration of each wait, however it ended. It is called without the lock. outages: returns what
        keeps brokers from accepting records, for error messages.
        """
        self._on_wait = on_wait
        self._outages = outages
        self.total = total
        self.chunk_size = chunk_size
        self.capacity = total // chunk_size  # in chunks
        self._lock = threading.Lock()
        self._free: list[Chunk] = []
        self._made = 0  # chunks in the free list or in use
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def available(self) -> int:
        """Number of free bytes, allocated or not."""
        with self._lock:
            # If all of it is free, that is all of `total`, whose last bytes may be less than a chunk.
            return max(self.total - (self.capacity - self._available_chunks()) * self.chunk_size, 0)

    def chunks_for(self, size: int) -> int:
        return -(-size // self.chunk_size)

    @property
    def free_chunks(self) -> int:
        """Number of free chunks, allocated or not; negative while the pool is overdrawn."""
        with self._lock:
            return self._available_chunks()

    def queued(self) -> int:
        with self._lock:
            return len(self._waiters)

    def try_allocate(self, n_chunks: int) -> list[Chunk] | None:
        """Returns `n_chunks` chunks at once, or None if not enough are free or others are waiting.

        Raises RecordTooLargeError for more than the whole pool, UsageError after close.
        """
        self._check_fits(n_chunks)
        with self._lock:
            return self._take_now(n_chunks)

    def allocate(self, n_chunks: int, deadline_s: float, begun_s: float | None = None) -> list[Chunk]:
        """Returns `n_chunks` chunks, waiting until `deadline_s` (time.monotonic). Error messages count the time from `begun_s`,
        or from now.

        Raises as `try_allocate` does, UsageError if the pool is closed meanwhile, and BufferExhaustedError at the deadline.
        """
        self._check_fits(n_chunks)
        begun = time.monotonic() if begun_s is None else begun_s
        with self._lock:
            chunks = self._take_now(n_chunks)
            if chunks is not None:
                return chunks
            waiter = _Waiter(n_chunks)
            self._waiters.append(waiter)
        return self._wait(waiter, begun, deadline_s)

    def borrow(self, n_chunks: int) -> list[Chunk] | None:
        """Returns `n_chunks` chunks at once, ahead of waiters and beyond the bound, unless the pool is already overdrawn.

        For callers that can neither wait nor starve. Raises as `try_allocate` does.
        """
        self._check_fits(n_chunks)
        with self._lock:
            self._check_open()
            return None if self._available_chunks() < 0 else self._take(n_chunks)

    def overdraw(self, n_chunks: int) -> list[Chunk]:
        """Returns `n_chunks` chunks at once, available or not, for a caller that soon releases as many, itself or with others."""
        with self._lock:
            return self._take(n_chunks)

    def deallocate(self, chunks: list[Chunk]) -> None:
        """Returns chunks, which must be the allocated objects, and serves waiters. Harmless after close."""
        with self._lock:
            self._put_back(chunks)

    def take_back(self, memories: Iterable[BatchMemory]) -> None:
        """Returns the memory of batches. A shared block returns with its last user."""
        with self._lock:
            freed: list[Chunk] = []
            for memory in memories:
                chunks, shared = memory.emptied()
                freed += chunks
                for block in shared:
                    block.users -= 1
                    if block.users == 0:
                        freed += block.chunks
            if freed:
                self._put_back(freed)

    def close(self) -> None:
        """Wakes every waiter with UsageError and releases free memory. Chunks in use are released when they are returned."""
        with self._lock:
            self._closed = True
            self._made -= len(self._free)
            self._free.clear()
            for waiter in self._waiters:
                waiter.done.put(None)
            self._waiters.clear()

    def _available_chunks(self) -> int:
        return self.capacity - self._made + len(self._free)

    def _take_now(self, n_chunks: int) -> list[Chunk] | None:
        self._check_open()
        if self._waiters or n_chunks > self._available_chunks():
            return None
        return self._take(n_chunks)

    def _take(self, n_chunks: int) -> list[Chunk]:
        """Returns free chunks, the latest freed first because they are still cached, and new ones if there are not enough."""
        chunks = self._free[-n_chunks:] if n_chunks else []
        del self._free[len(self._free) - len(chunks) :]
        new = n_chunks - len(chunks)
        self._made += new
        return chunks + [Chunk(self.chunk_size) for _ in range(new)]

    def _put_back(self, chunks: list[Chunk]) -> None:
        if len(self._free) + len(chunks) > self._made:
            raise UsageError("buffer pool: more chunks were returned than were allocated")
        if self._closed:
            self._made -= len(chunks)
            return
        self._free.extend(chunks)
        overdrawn = min(max(self._made - self.capacity, 0), len(self._free))
        del self._free[:overdrawn]
        self._made -= overdrawn
        self._serve()

    def _serve(self) -> None:
        """Serves the oldest waiters, up to the first one that must keep waiting."""
        while self._waiters and self._waiters[0].needed <= self._available_chunks():
            waiter = self._waiters.popleft()
            waiter.chunks = self._take(waiter.needed)
            waiter.done.put(None)

    def _wait(self, waiter: _Waiter, begun: float, deadline_s: float) -> list[Chunk]:
        waiting_ns = time.monotonic_ns()
        with suppress(Empty):
            waiter.done.get(timeout=min(max(deadline_s - time.monotonic(), 0), threading.TIMEOUT_MAX))
        self._on_wait(time.monotonic_ns() - waiting_ns)
        with self._lock:
            if waiter.chunks is not None:  # also if it was served exactly at the deadline
                return waiter.chunks
            self._check_open()
            ahead = self._waiters.index(waiter)
            self._waiters.remove(waiter)
            self._serve()
            free = max(self._available_chunks(), 0) * self.chunk_size
        why = self._outages()
        raise BufferExhaustedError(
            f"buffer.memory: timed out after {(time.monotonic() - begun) * 1000:.0f} ms waiting for"
            f" {waiter.needed * self.chunk_size} bytes ({free} of {self.total} bytes are free, {ahead} appends wait"
            f" ahead); the brokers accept records more slowly than they are appended{why and f' ({why})'}: check the brokers and"
            " their quotas, or raise buffer.memory or max.block.ms",
            option="buffer.memory",
        )

    def _check_fits(self, n_chunks: int) -> None:
        if n_chunks > self.capacity:
            raise RecordTooLargeError(
                f"buffer.memory: {n_chunks * self.chunk_size} bytes are needed at once, but buffer.memory is"
                f" {self.total}: raise it",
                option="buffer.memory",
            )

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(
                "buffer pool: the producer was closed while records were still being appended; finish appending"
                " before you close it"
            )


class BatchMemory:
    """The memory of a batch's records: copied into its own chunks, or parts of encoded blocks shared with other batches.

    Owned by the batch's owner. Nothing may be read after `give_back`.
    """

    __slots__ = ("_chunks", "_pieces", "_room", "_shared")

    def __init__(self, chunks: Sequence[Chunk] = ()) -> None:
        """`chunks` stand for memory that is not tracked here."""
        # Tuples, because with many partitions a batch has one chunk and one piece, and empty lists keep the garbage
        # collector busy: making a batch took 2.3 us of CPU, now 1.4.
        self._chunks = tuple(chunks)
        self._shared: tuple[SharedChunks, ...] = ()
        self._pieces: tuple[memoryview, ...] = ()
        self._room = 0

    @property
    def room(self) -> int:
        """Free bytes in the last chunk."""
        return self._room

    def copy(self, source: memoryview, fresh: list[Chunk]) -> None:
        """Copies `source` to the end, using chunks of `fresh` as needed, whose memory must be allocated."""
        length = len(source)
        room = self._room
        if length < room:  # the common case with many partitions: one copy
            self._pieces[-1][-room : length - room] = source
            self._room = room - length
            return
        if room:
            self._pieces[-1][-room:] = source[:room]
            self._room = 0
        position = room
        while position < length:
            assert fresh, "planned with too small an upper bound of the record sizes"
            chunk = fresh.pop()
            memory = chunk.memory
            taken = min(len(memory), length - position)
            memory[:taken] = source[position : position + taken]
            self._chunks += (chunk,)
            self._pieces += (memory,)
            self._room = len(memory) - taken
            position += taken

    def share(self, piece: memoryview, block: SharedChunks) -> None:
        """Adds a part of an encoded block without copying; `block` stands for the whole block in the pool."""
        if self._room:  # the rest of the last chunk stays unused
            self._pieces = (*self._pieces[:-1], self._pieces[-1][: -self._room])
            self._room = 0
        self._pieces += (piece,)
        self._shared += (block,)
        block.users += 1

    def pieces(self) -> list[memoryview]:
        if not self._room:
            return list(self._pieces)
        return [*self._pieces[:-1], self._pieces[-1][: -self._room]]

    def give_back(self, pool: BufferPool) -> None:
        """Releases all memory. Calling it again has no effect."""
        pool.take_back((self,))

    def emptied(self) -> tuple[tuple[Chunk, ...], tuple[SharedChunks, ...]]:
        """Removes all memory, and returns the chunks and blocks that the caller must return to the pool."""
        chunks, self._chunks = self._chunks, ()
        shared, self._shared = self._shared, ()
        self._pieces = ()
        self._room = 0
        return chunks, shared
