"""RecordAccumulator, ReadyQueues, Planner and Appender through any history: nothing is forgotten, doubled, or kept.

The sender's thread and other tasks act at the points where an append holds no lock: while it encodes, and before it waits for
memory. All of it runs in one thread by a virtual clock, so every history repeats.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_sink.client.cluster import NO_LEADER
from spark_kafka_sink.errors import BufferExhaustedError, UsageError
from spark_kafka_sink.producer.accumulator import appender
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.pieces import encode_pieces
from tests.producer.accumulator.model_sender import NODES, ModelSender, is_being_written
from tests.producer.histories import HISTORIES
from tests.producer.parts import make_parts
from tests.producer.simulation.clock import VirtualClock

pytestmark = pytest.mark.slow

PARTITIONS = 2
SCOPES = 2
DELIVERY_TIMEOUT_MS = 5000

ROWS = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from([4, 4, 4, 30, 90, 400])), min_size=1, max_size=8)
WHICH = st.integers(0, 11)
ANSWERS = ["ack", "ack", "ack", "refused", "refused", "out of order", "moved", "too large", "fail"]
# What others do while an append holds no lock.
MEANWHILE = st.lists(
    st.tuples(st.sampled_from(["drain", "drain", "ack", "ack", "refused", "flush", "expire", "append", "discard"]), WHICH),
    max_size=6,
)


class AccumulatorMachine(RuleBasedStateMachine):
    """The tasks and the cluster; the sender's side and what it knows of each record is ModelSender."""

    @initialize(
        order=st.sampled_from(["muted", "numbered", "known"]),
        linger_ms=st.sampled_from([0, 100]),
        batch_size=st.sampled_from([1, 300]),
        chunks=st.sampled_from([16, 60]),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
        ending=st.sampled_from(["settle", "settle", "close", "abort"]),
    )
    def begin(self, order: str, linger_ms: int, batch_size: int, chunks: int, codec: Codec, ending: str) -> None:
        self.clock, self.patches = VirtualClock(), ExitStack()
        self.patches.enter_context(self.clock.installed())
        self.parts = make_parts(
            chunk_size=64,
            buffer_memory=chunks * 64,
            batch_size=batch_size,
            linger_ms=linger_ms,
            request_timeout_ms=1000,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=0,
        )
        self.parts.wakeups.on_wakeup = self.others
        self.patches.enter_context(patch.object(appender, "encode_pieces", self.encode))
        self.accumulator, self.pool = self.parts.accumulator, self.parts.pool
        self.sender = ModelSender(self.parts, self.clock, [0, 1], order=order, codec=codec)
        self.meanwhile: list[tuple[str, int]] = []
        self.numbers = itertools.count(1)
        self.scopes = [self.parts.tally() for _ in range(SCOPES)]
        self.unsure: set[int] = set()  # records of appends that ended for want of memory
        self.ending, self.ended = ending, False

    def teardown(self) -> None:
        if not hasattr(self, "patches"):
            return
        with self.patches:
            if self.ending == "abort":
                self.abort_in_an_append()
            else:
                self.accumulator.closed = self.ending == "close"
                self.settle()

    # Tasks

    @rule(who=st.integers(0, SCOPES - 1), rows=ROWS, meanwhile=MEANWHILE)
    def append(self, who: int, rows: list[tuple[int, int]], meanwhile: list[tuple[str, int]]) -> None:
        scope = self.scopes[who]
        self.meanwhile = meanwhile
        begun_ms = self.clock.ms
        numbers = [next(self.numbers) for _ in rows]
        self.sender.scope_of.update(dict.fromkeys(numbers, scope))
        values: list[bytes | None] = [b"%0*d" % (size, number) for number, (_, size) in zip(numbers, rows, strict=True)]
        try:
            self.parts.append(scope, values, [partition for partition, _ in rows], count=PARTITIONS)
        except BufferExhaustedError:
            self.unsure.update(numbers)
        except UsageError:
            assert self.ended
        self.sender.slack_ms = max(self.sender.slack_ms, self.clock.ms - begun_ms)

    def encode(self, *columns: Any) -> Any:
        self.others()
        return encode_pieces(*columns)

    def others(self) -> None:
        """The turn of others, in the middle of an append; a long one while it waits for memory."""
        turns = len(self.meanwhile) if self.accumulator.memory_waiters else 2
        for what, which in [self.meanwhile.pop() for _ in self.meanwhile[:turns]]:
            if what in {"append", "discard"}:
                who = which % SCOPES
                if self.scopes[who].appending.locked():
                    continue
                if what == "discard":
                    self.discard(who)
                else:
                    self.append(who, [(which % PARTITIONS, 30)] * 2, [])
            elif what == "expire":
                self.pass_time(DELIVERY_TIMEOUT_MS)
                self.expire()
            elif what == "flush":
                self.flush(None)
            elif what == "abort":
                self.abort()
            elif what == "drain":
                self.sender.drain(which % 2, 2**31)
            elif self.sender.wire:
                self.sender.answer(what, which)

    @rule(who=st.none() | st.integers(0, SCOPES - 1))
    def flush(self, who: int | None) -> None:
        scope = None if who is None else self.scopes[who]
        self.accumulator.flush(scope)
        lingering = self.accumulator._ready.lingering
        assert not [batch for batch in lingering if scope is None or batch.tally is scope]

    @rule(who=st.integers(0, SCOPES - 1))
    def discard(self, who: int) -> None:
        scope, self.scopes[who] = self.scopes[who], self.parts.tally()
        self.parts.discard(scope)
        assert all(batch.tally is not scope for batch in self.sender.incomplete())
        for number, owner in self.sender.scope_of.items():
            if owner is scope:
                self.sender.fate.setdefault(number, "discarded")

    # The sender

    @rule(
        nodes=st.sampled_from([NODES, NODES, (0,), (1,)]), max_size=st.sampled_from([100, 700, 2**31]), requests=st.integers(1, 4)
    )
    def send(self, nodes: tuple[int, ...], max_size: int, requests: int) -> None:
        for node in nodes * requests:
            self.sender.drain(node, max_size)

    @precondition(lambda self: self.sender.wire)
    @rule(answers=st.lists(st.tuples(st.sampled_from(ANSWERS), WHICH), min_size=1, max_size=5))
    def answered(self, answers: list[tuple[str, int]]) -> None:
        for what, which in answers:
            if self.sender.wire:
                self.sender.answer(what, which)

    @rule()
    def expire(self) -> None:
        self.sender.expire()

    # Time and the cluster

    @rule(ms=st.sampled_from([1, 50, 100, 1000, 3000]))
    def pass_time(self, ms: int) -> None:
        self.clock.ms += ms

    @rule(partition=st.integers(0, PARTITIONS - 1), node=st.sampled_from([*NODES, NO_LEADER]))
    def move(self, partition: int, node: int) -> None:
        self.sender.move(partition, node)

    # What must hold

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """A queue with something to send is where the sender will find it, or something on the wire will bring it there."""
        ready = self.accumulator._ready
        for queue in self.sender.queues():
            if queue.head() is None or queue in ready.of_node(queue.leader):  # type: ignore[arg-type]
                continue
            if queue.backing_off:
                assert (queue.back_off_until_ms, queue) in [(until, backing) for until, _, backing in ready._backing_off]
            elif not self.waits_for_an_answer(queue):
                assert not queue.retries
                assert queue.batches[0] in ready.lingering, f"{queue} is forgotten"

    def waits_for_an_answer(self, queue: PartitionQueue) -> bool:
        on_wire = any(batch.queue is queue for batch in self.sender.wire)
        if queue.sequences is None:
            assert queue.muted == on_wire
            return on_wire
        if queue.retries:
            return on_wire and not any(queue.sequences.may_resend(batch) for batch in queue.retries)
        elsewhere = any(batch.sent_to != queue.leader for batch in queue.sequences.in_flight)
        return on_wire and (elsewhere or not queue.sequences.may_send_new())

    @invariant()
    def each_batch_is_in_one_place(self) -> None:
        waiting = [batch for queue in self.sender.queues() for batch in (*queue.retries, *queue.batches)]
        on_the_wire = [batch for batch in self.sender.wire if not batch.done]
        assert len({*waiting, *on_the_wire}) == len(waiting) + len(on_the_wire)
        assert {*waiting, *on_the_wire} == set(self.sender.incomplete())
        for queue in self.sender.queues():
            assert queue.open is None or queue.open is queue.batches[-1]
            assert [batch.first_record for batch in queue.retries] == sorted(batch.first_record for batch in queue.retries)
        assert set(self.accumulator._ready.lingering) <= {queue.open for queue in self.sender.queues()}

    @invariant()
    def the_first_is_the_oldest(self) -> None:
        ages = [self.sender.age_ms(batch) for batch in self.sender.incomplete()]
        assert all(older >= younger - self.sender.slack_ms for older, younger in itertools.pairwise(ages))

    @invariant()
    def memory_is_held_by_batches_and_nobody_else(self) -> None:
        memories = [batch.memory for batch in {*self.sender.incomplete(), *self.sender.wire}]
        chunks = [chunk for memory in memories for chunk in memory._chunks]
        blocks = Counter(block for memory in memories for block in memory._shared)
        assert all(block.users == users for block, users in blocks.items())
        chunks += [chunk for block in blocks for chunk in block.chunks]
        assert len(set(map(id, chunks))) == len(chunks)
        assert self.pool.free_chunks == self.pool.capacity - len(chunks)
        assert self.accumulator.memory_waiters == 0

    # The end

    def settle(self) -> None:
        """Everything can be sent and is acked from now on: all of it goes out, by the passing of time alone."""
        for partition, leader in enumerate(self.sender.leaders):
            self.sender.move(partition, max(leader, 0))
        for _ in range(100):
            for node in NODES:
                self.sender.drain(node, 2**31)
            while self.sender.wire:
                self.sender.answer("ack", 0)
            self.nothing_is_forgotten()
            self.pass_time(100)
            if not self.accumulator.has_incomplete():
                break
        assert not self.sender.incomplete()
        assert self.pool.available == self.pool.total
        assert self.sender.scope_of.keys() <= self.sender.fate.keys() | self.unsure, "lost"

    def abort_in_an_append(self) -> None:
        self.append(0, [(0, 30), (1, 30)], [("abort", 0)])
        if not self.ended:  # for want of memory it did not come to that
            self.abort()

    def abort(self) -> None:
        """As the sender's thread ends: the connections are closed, then the pool."""
        self.ended = True
        self.sender.wire.clear()
        self.pool.close()
        for batch in self.accumulator.abort_all():
            if not is_being_written(batch):
                batch.memory.give_back(self.pool)
        assert not self.sender.incomplete()
        self.accumulator.ready(self.parts.cluster, self.clock.ms)
        assert not any(self.accumulator.drain(node, 2**31) for node in NODES)


TestAccumulatorMachine = pytest.mark.timeout(600)(AccumulatorMachine.TestCase)
TestAccumulatorMachine.settings = settings(HISTORIES, stateful_step_count=80)
