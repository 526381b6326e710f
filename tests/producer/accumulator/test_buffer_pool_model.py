"""BufferPool against a count and a list of who waits: any history of allocations, returns, deadlines and close.

Who waits is a real thread, which comes back from its wait when the history says so and not before. So a waiter can have been
served, or its deadline be over, while its thread has not run yet, and every history repeats.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, UsageError
from spark_kafka_sink.producer.accumulator import buffer_pool
from spark_kafka_sink.producer.accumulator.buffer_pool import BatchMemory, BufferPool, Chunk, SharedChunks
from tests.producer.histories import HISTORIES

pytestmark = pytest.mark.slow

CHUNK = 8
CAPACITY = 6
MOST_WAITING = 6
DEADLINE_S = 60.0  # of what takes microseconds unless something is wrong
FAR_AWAY_S = float(2**62)


class Gate:
    """Stands in for a waiter's queue: the thread stays in `get` until the history lets it go."""

    def __init__(self, entered: queue.Queue[Gate | None]) -> None:
        self._entered = entered
        self._open = threading.Event()
        self.served = False

    def put(self, item: None) -> None:
        self.served = True

    def get(self, timeout: float) -> None:
        self._entered.put(self)
        assert self._open.wait(DEADLINE_S)
        if not self.served:
            raise queue.Empty

    def let_go(self) -> None:
        self._open.set()


@dataclass(eq=False)
class Waiting:
    needed: int
    gate: Gate
    future: Future[list[Chunk]]
    served: bool = False  # by the model


@dataclass(eq=False)
class Held:
    """Chunks with a holder's mark in each, so that a second holder would be seen; or a block that `users` share."""

    chunks: list[Chunk]
    mark: bytes
    shared: SharedChunks | None = None
    users: int = 0


class PoolMachine(RuleBasedStateMachine):
    @initialize(rest=st.integers(0, CHUNK - 1))
    def begin(self, rest: int) -> None:
        self.entered: queue.Queue[Gate | None] = queue.Queue()
        self.patches = patch.object(buffer_pool, "_Waiter", self.gated_waiter)
        self.patches.start()
        self.pool = BufferPool(CAPACITY * CHUNK + rest, CHUNK)
        self.threads = ThreadPoolExecutor(MOST_WAITING)
        self.marks = itertools.count(1)
        # The model
        self.free = CAPACITY
        self.line: deque[Waiting] = deque()
        self.waiting: list[Waiting] = []  # in the line, or out of it and not back from the wait yet
        self.held: list[Held] = []
        self.closed = False

    def gated_waiter(self, needed: int, waiter: type = buffer_pool._Waiter) -> object:
        made = waiter(needed)
        made.done = Gate(self.entered)
        return made

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        try:
            self.give_everything_back()
        finally:
            for waiting in self.waiting:
                waiting.gate.let_go()
            self.threads.shutdown()
            self.patches.stop()

    def give_everything_back(self) -> None:
        """Nothing is lost: all of the pool can be had again, also by who waits."""
        while self.held or self.waiting:
            while self.held:
                self.give_back(len(self.held) - 1)
            if self.waiting:
                self.come_back(0)
        self.counts_agree()
        assert self.pool.available == self.pool.total
        if not self.closed:
            assert len(self.pool.try_allocate(CAPACITY) or []) == CAPACITY

    # What threads do

    @rule(n=st.integers(0, CAPACITY + 1))
    def try_allocate(self, n: int) -> None:
        if n > CAPACITY:
            with pytest.raises(RecordTooLargeError):
                self.pool.try_allocate(n)
        elif self.closed:
            with pytest.raises(UsageError, match="closed"):
                self.pool.try_allocate(n)
        elif self.line or n > self.free:
            assert self.pool.try_allocate(n) is None
        else:
            self.hold(self.pool.try_allocate(n), n)

    @precondition(lambda self: len(self.waiting) < MOST_WAITING)
    @rule(n=st.integers(0, CAPACITY + 1))
    def allocate(self, n: int) -> None:
        future = self.threads.submit(self.pool.allocate, n, FAR_AWAY_S)
        future.add_done_callback(lambda _: self.entered.put(None))
        gate = self.entered.get(timeout=DEADLINE_S)
        if n > CAPACITY:
            assert isinstance(future.exception(DEADLINE_S), RecordTooLargeError)
        elif self.closed:
            assert isinstance(future.exception(DEADLINE_S), UsageError)
        elif self.line or n > self.free:
            assert gate is not None, "overtook who waits, or got more than there is"
            self.line.append(Waiting(n, gate, future))
            self.waiting.append(self.line[-1])
        else:
            assert gate is None, "waits for what is there"
            self.hold(future.result(DEADLINE_S), n)

    @rule(n=st.integers(1, 3))
    def overdraw(self, n: int) -> None:
        self.hold(self.pool.overdraw(n), n)

    @precondition(lambda self: not self.closed)
    @rule(n=st.integers(1, 3))
    def borrow(self, n: int) -> None:
        chunks = self.pool.borrow(n)
        assert (chunks is None) == (self.free < 0)
        if chunks is not None:
            self.hold(chunks, n)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 20))
    def give_back(self, which: int) -> None:
        held = self.held[which % len(self.held)]
        if held.shared is not None:
            held.users -= 1
            held.shared.users -= 1
            memory = BatchMemory()
            memory.share(memoryview(b""), held.shared)
            self.pool.take_back([memory])
            if held.users:
                return
        else:
            assert all(bytes(chunk.memory) == held.mark for chunk in held.chunks), "another one wrote into a chunk that is held"
            self.pool.deallocate(held.chunks)
        self.held.remove(held)
        self.freed(len(held.chunks))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 20), users=st.integers(1, 3))
    def lend(self, which: int, users: int) -> None:
        held = self.held[which % len(self.held)]
        if held.shared is None:
            held.shared, held.users = SharedChunks(), users
            held.shared.lend(held.chunks)
            held.shared.users = users

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 20))
    def come_back(self, which: int) -> None:
        """A waiter's thread runs again: it was served, or woken by close, or else its deadline is over."""
        waiting = self.waiting.pop(which % len(self.waiting))
        waiting.gate.let_go()
        error = waiting.future.exception(DEADLINE_S)
        self.entered.get(timeout=DEADLINE_S)  # the future's own word
        if waiting.served:
            assert error is None
            self.keep(waiting.future.result())
        else:
            assert isinstance(error, UsageError if self.closed else BufferExhaustedError)
        if waiting in self.line:
            if isinstance(error, BufferExhaustedError):
                assert f"{self.line.index(waiting)} appends wait ahead" in str(error)
            self.line.remove(waiting)
            self.serve()

    @rule()
    def close(self) -> None:
        self.pool.close()
        self.closed = True
        self.line.clear()

    # The model

    def hold(self, chunks: list[Chunk] | None, n: int) -> None:
        assert chunks is not None
        assert len(chunks) == n
        self.free -= n
        self.keep(chunks)

    def keep(self, chunks: list[Chunk]) -> None:
        mark = next(self.marks).to_bytes(CHUNK, "big")
        for chunk in chunks:
            chunk.memory[:] = mark
        self.held.append(Held(chunks, mark))

    def freed(self, n: int) -> None:
        self.free += n
        self.serve()

    def serve(self) -> None:
        while self.line and self.line[0].needed <= self.free:
            first = self.line.popleft()
            first.served = True
            self.free -= first.needed

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.free_chunks == self.free
        assert self.pool.available == max(self.pool.total - (self.pool.capacity - self.free) * CHUNK, 0)
        assert self.pool.queued() == len(self.line)

    @invariant()
    def no_more_memory_is_kept_than_the_bound_or_what_is_held(self) -> None:
        assert self.pool._made <= max(CAPACITY, CAPACITY - self.free)

    @invariant()
    def who_came_first_is_served_first(self) -> None:
        assert [w.gate.served for w in self.waiting] == [w.served or self.closed for w in self.waiting]

    @invariant()
    def no_chunk_is_held_twice(self) -> None:
        chunks = [id(chunk) for held in self.held for chunk in held.chunks]
        assert len(set(chunks)) == len(chunks)


TestPoolMachine = pytest.mark.timeout(600)(PoolMachine.TestCase)
TestPoolMachine.settings = settings(HISTORIES, stateful_step_count=80)
