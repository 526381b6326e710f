"""The bound of buffer.memory: fixed chunks, handed out first come first served, that batches are chains of or that stand for
other memory of theirs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, UsageError


class Chunk:
    """Leave to hold `size` bytes: in memory of its own, made when it is first asked for, or in some other (`lend`)."""

    __slots__ = ("_memory", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory: memoryview | None = None

    @property
    def memory(self) -> memoryview:
        """Contents unspecified. Raises MemoryError."""
        if self._memory is None:
            self._memory = memoryview(bytearray(self.size))
        return self._memory

    def lend(self) -> None:
        """Other memory takes the place of its own, which is let go."""
        self._memory = None


class SharedChunks:
    """Chunks lent to a block that several batches lie in; the pool gets them back from the last of its `users`."""

    __slots__ = ("chunks", "users")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.users = 0

    def lend(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            chunk.lend()
        self.chunks = chunks


class _Waiter:
    """An allocation that waits; `chunks` is set, under the pool's lock, by whoever serves it, and `done` after that."""

    __slots__ = ("chunks", "done", "needed")

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.chunks: list[Chunk] | None = None
        self.done = threading.Event()


class BufferPool:
    """`total` bytes of memory in chunks of `chunk_size` bytes (Kafka's BufferPool, whose one buffer per batch is a chunk here).

    Chunks are made when first needed and kept, with their memory, in a free list. Any thread may call anything; `_lock` guards
    every attribute, and the users of shared chunks once there are two, and is never held while a waiter waits. Freed chunks are
    handed to the waiters themselves, oldest first, so nobody overtakes: not a newcomer, not a small request behind a large one.
    """

    def __init__(self, total: int, chunk_size: int, *, on_wait: Callable[[int], None] = lambda waited_ns: None) -> None:
        """`on_wait` is told how long each wait took, whatever came of it; it is called without the lock."""
        self._on_wait = on_wait
        self.total = total
        self.chunk_size = chunk_size
        self.capacity = total // chunk_size  # in chunks
        self._lock = threading.Lock()
        self._free: list[Chunk] = []
        self._made = 0  # chunks in the free list or with a caller
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def available(self) -> int:
        """Bytes nobody holds, made or not."""
        with self._lock:
            # With all of it free it is all of `total`, of which the last bytes may be less than a chunk.
            return max(self.total - (self.capacity - self._available_chunks()) * self.chunk_size, 0)

    def chunks_for(self, size: int) -> int:
        """Returns how many chunks hold so many bytes."""
        return -(-size // self.chunk_size)

    @property
    def free_chunks(self) -> int:
        """Chunks nobody holds, made or not; negative while it is overdrawn."""
        with self._lock:
            return self._available_chunks()

    def queued(self) -> int:
        """The number of allocations that wait for memory."""
        with self._lock:
            return len(self._waiters)

    def try_allocate(self, n_chunks: int) -> list[Chunk] | None:
        """`n_chunks` chunks at once, or None when there are not as many or others wait for them.

        Raises RecordTooLargeError for more than the whole pool, UsageError after close.
        """
        self._check_fits(n_chunks)
        with self._lock:
            return self._take_now(n_chunks)

    def allocate(self, n_chunks: int, deadline_s: float, begun_s: float | None = None) -> list[Chunk]:
        """`n_chunks` chunks, waiting for them until `deadline_s` on time.monotonic's clock. An error counts from `begun_s` on, if
        that is not now.

        Raises as `try_allocate` does, UsageError when the pool is closed meanwhile, and BufferExhaustedError at the deadline.
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
        """`n_chunks` chunks at once, past those who wait and past the bound, unless it is overdrawn already: for who can neither
        wait nor stay behind others for ever. Raises as `try_allocate` does."""
        self._check_fits(n_chunks)
        with self._lock:
            self._check_open()
            return None if self._available_chunks() < 0 else self._take(n_chunks)

    def overdraw(self, n_chunks: int) -> list[Chunk]:
        """`n_chunks` chunks at once, whether they are there or not, for who lets go of as many: at once, or when the other users
        of the same block do so too."""
        with self._lock:
            return self._take(n_chunks)

    def deallocate(self, chunks: list[Chunk]) -> None:
        """Give chunks back, each the very object that was allocated, and serve who waits. Harmless after close."""
        with self._lock:
            if len(self._free) + len(chunks) > self._made:
                raise UsageError("buffer pool: more chunks were given back than were allocated")
            self._put_back(chunks)

    def leave(self, shared: SharedChunks) -> None:
        """One user less; the last one gives the chunks back."""
        with self._lock:
            shared.users -= 1
            if shared.users == 0:
                self._put_back(shared.chunks)

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

    def _take_now(self, n_chunks: int) -> list[Chunk] | None:
        self._check_open()
        if self._waiters or n_chunks > self._available_chunks():
            return None
        return self._take(n_chunks)

    def _take(self, n_chunks: int) -> list[Chunk]:
        """Free chunks, the latest freed, which are still cached; and new ones where there are not enough."""
        chunks = self._free[-n_chunks:] if n_chunks else []
        del self._free[len(self._free) - len(chunks) :]
        new = n_chunks - len(chunks)
        self._made += new
        return chunks + [Chunk(self.chunk_size) for _ in range(new)]

    def _put_back(self, chunks: list[Chunk]) -> None:
        if self._closed:
            self._made -= len(chunks)
            return
        self._free.extend(chunks)
        overdrawn = min(max(self._made - self.capacity, 0), len(self._free))
        del self._free[:overdrawn]
        self._made -= overdrawn
        self._serve()

    def _serve(self) -> None:
        """Hand over to the oldest waiters what is there for them; stops at the first that must wait on."""
        while self._waiters and self._waiters[0].needed <= self._available_chunks():
            waiter = self._waiters.popleft()
            waiter.chunks = self._take(waiter.needed)
            waiter.done.set()

    def _wait(self, waiter: _Waiter, begun: float, deadline_s: float) -> list[Chunk]:
        waiting_ns = time.monotonic_ns()
        try:
            waiter.done.wait(min(max(deadline_s - time.monotonic(), 0), threading.TIMEOUT_MAX))
            self._on_wait(time.monotonic_ns() - waiting_ns)
        except BaseException:  # an interrupt must not keep the place in the queue, nor the memory
            with self._lock:
                self._leave(waiter)
            raise
        with self._lock:
            if waiter.chunks is not None:  # also when it was served at the very deadline
                return waiter.chunks
            self._check_open()
            ahead = self._leave(waiter)
            free = max(self._available_chunks(), 0) * self.chunk_size
        raise BufferExhaustedError(
            f"buffer.memory: {waiter.needed * self.chunk_size} bytes did not become free within "
            f"{(time.monotonic() - begun) * 1000:.0f} ms ({free} of {self.total} bytes are free, {ahead} appends wait before); "
            "the brokers take records more slowly than they come: see to them, or raise buffer.memory or max.block.ms",
            option="buffer.memory",
        )

    def _leave(self, waiter: _Waiter) -> int:
        """Forget a waiter, whatever became of it meanwhile; returns how many stood before it."""
        if waiter.chunks is not None:
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


class BatchMemory:
    """The place of a batch's records: copied into chunks of its own, or in parts of encoded blocks shared with other batches.

    Owned by whoever owns the batch. Nothing of it may be read after `give_back`.
    """

    __slots__ = ("_chunks", "_pieces", "_room", "_shared")

    def __init__(self, chunks: Sequence[Chunk] = ()) -> None:
        """`chunks`: leave for memory that is not kept track of here."""
        self._chunks = list(chunks)
        self._shared: list[SharedChunks] = []
        self._pieces: list[memoryview] = []
        self._room = 0

    @property
    def room(self) -> int:
        """Free bytes in the last chunk."""
        return self._room

    def copy(self, source: memoryview, fresh: list[Chunk]) -> None:
        """Copy `source` to the end, taking chunks from `fresh` as they are needed; their memory must have been made."""
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
            assert fresh, "planned with too small a bound of the records' sizes"
            chunk = fresh.pop()
            memory = chunk.memory
            taken = min(len(memory), length - position)
            memory[:taken] = source[position : position + taken]
            self._chunks.append(chunk)
            self._pieces.append(memory)
            self._room = len(memory) - taken
            position += taken

    def share(self, piece: memoryview, block: SharedChunks) -> None:
        """Keep a part of an encoded block as it is; `block` stands for the whole of it in the pool."""
        if self._room:  # what is free in the last chunk stays so
            self._pieces[-1] = self._pieces[-1][: -self._room]
            self._room = 0
        self._pieces.append(piece)
        self._shared.append(block)
        block.users += 1

    def pieces(self) -> list[memoryview]:
        """The records as they lie, in order."""
        if not self._room:
            return list(self._pieces)
        return [*self._pieces[:-1], self._pieces[-1][: -self._room]]

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes only: what is behind them was not finished. The memory goes with the rest."""
        pieces = self.pieces()
        excess = sum(map(len, pieces)) - size
        while excess > 0:
            piece = pieces.pop()
            excess -= len(piece)
            if excess < 0:
                pieces.append(piece[:-excess])
        self._pieces, self._room = pieces, 0

    def give_back(self, pool: BufferPool) -> None:
        """Let all of it go. Once more does nothing."""
        chunks, self._chunks = self._chunks, []
        shared, self._shared = self._shared, []
        self._pieces = []
        self._room = 0
        pool.deallocate(chunks)
        for block in shared:
            pool.leave(block)
