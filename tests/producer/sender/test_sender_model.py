"""The whole producer but for its sockets, against brokers that keep to Kafka's rules, through any faults.

When faults have ceased, each record was acked and is stored once, or failed and is stored once at most; partitions keep the order
of each scope's appends, nothing waits any more, and all memory is back.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spark_kafka_sink.client.cluster import NO_LEADER
from spark_kafka_sink.errors import DeadlineError, DeliveryError, KafkaSinkError, PeerError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.accumulator.appender import Append
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.accumulator.sequences import MAX_EPOCH, NumberedBatch
from spark_kafka_sink.producer.base.producer_record import OnCompletion, RecordMetadata
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.small_batches import decode_batches
from tests.producer.histories import HISTORIES
from tests.producer.inside import accumulator_of, begin_flush, columns_of, metadata_of, pool_of
from tests.producer.simulation.clock import VirtualClock
from tests.producer.simulation.cluster import FATES, NODES, TOPIC, SimulatedCluster, SimulatedLog
from tests.producer.simulation.stepped_producer import CHUNK, NumbersThunk, SteppedProducer, Told

pytestmark = pytest.mark.slow

PARTITIONS = 2
SCOPES = 2
DAY_MS = 86_400_000
DELIVERY_TIMEOUT_MS = 6_000
SETTLED_MS = 3_000  # less than a batch may take before it expires

SAID = st.lists(st.sampled_from(["as Kafka", "as Kafka", "stored, timed out", "forbidden", *FATES]), min_size=1, max_size=3)
TURNS = st.tuples(
    st.sampled_from(["serve", "serve", "serve", "serve", "cut 0", "cut 1", "move", "nothing"]), SAID, st.sampled_from([0, 0, 130])
)
NODE = st.sampled_from(NODES)
PARTITION = st.sampled_from([0, 0, 0, 1])
# Records: how many to each partition, and of what size.
ROWS = st.lists(st.tuples(PARTITION, st.sampled_from([4, 4, 4, 40, 150])), min_size=1, max_size=8)
ROUNDS = st.integers(0, 8)  # of the sender's loop
SETTINGS = {
    "bootstrap.servers": "localhost:9092",
    "buffer.memory": 100 * CHUNK,
    "max.block.ms": 0,
    "request.timeout.ms": 1000,
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 100,  # no random part in the metadata's
}
HOW_ORDERED: dict[str, dict[str, object]] = {
    "by numbers": {},
    "one in flight": {"max.in.flight.requests.per.connection": 1},
    "by muting": {"max.in.flight.requests.per.connection": 1, "enable.idempotence": False},
}


class SenderMachine(RuleBasedStateMachine):
    @initialize(
        ordered=st.sampled_from(["by numbers", "by numbers", "by numbers", *HOW_ORDERED]),
        batch_size=st.sampled_from([1, 1, 200]),
        linger_ms=st.sampled_from([0, 20]),
        request_size=st.sampled_from([250, 400, 1 << 20]),
        compression=st.sampled_from(["none", "none", "lz4"]),
        optimistic=st.booleans(),
        strict=st.booleans(),
        max_batch=st.sampled_from([1 << 20, 1 << 20, 150]),
        rejects=st.sampled_from([0, 0, 0, 5]),
        first_epoch=st.sampled_from([0, 0, MAX_EPOCH - 1]),
        patient=st.booleans(),
        known=st.booleans(),
        unlucky=st.dictionaries(st.integers(3, 12), st.integers(1, 4), max_size=1),
    )
    def begin(
        self,
        ordered: str,
        batch_size: int,
        linger_ms: int,
        request_size: int,
        compression: str,
        optimistic: bool,
        strict: bool,
        max_batch: int,
        rejects: int,
        first_epoch: int,
        patient: bool,
        known: bool,
        unlucky: dict[int, int],
    ) -> None:
        """optimistic: of what is drained most does not fit into its request. patient: requests do not time out, as when brokers
        throttle (KIP-219). known: each partition has stored a record before faults begin. unlucky: records whose answers lack
        so many times."""
        logging.disable(logging.ERROR)
        self.clock = VirtualClock()
        self.cluster = SimulatedCluster(PARTITIONS, strict=strict, max_batch=max_batch, rejects=rejects)
        self.cluster.first_epoch, self.cluster.unlucky = first_epoch, unlucky
        options = {"batch.size": batch_size, "linger.ms": linger_ms, "max.request.size": request_size}
        config = producer_config({**SETTINGS, **options, "compression.type": compression, **HOW_ORDERED[ordered]})
        self.idempotent = config.enable_idempotence
        self.stepped = SteppedProducer(config, self.cluster, self.clock, optimistic=optimistic)
        self.producer, self.client = self.stepped.producer, self.stepped.client
        self.client.on_wakeup, self.client.patient = self.meanwhile, patient
        self.turns = 0
        self.numbers = itertools.count(1)
        self.scopes: list[SendScope] = [self.new_scope(who) for who in range(SCOPES)]
        self.scope_of: dict[int, object] = {}
        self.told = Told()
        self.made_anew: set[int] = set()  # partitions of which nothing was acked since
        self.disordered: set[int] = set()
        metadata_of(self.producer).add(TOPIC, self.clock.ms)
        self.step()
        if known:
            self.client.healthy = True
            self.append(0, [(partition, 4) for partition in range(PARTITIONS)], 0, 0)
            self.run_until_settled(SETTLED_MS)
            self.client.healthy = False

    def teardown(self) -> None:
        with ExitStack() as ends:
            ends.callback(logging.disable, logging.NOTSET)
            if hasattr(self, "stepped"):
                ends.callback(self.stepped.end)
                self.settle()

    # Tasks

    @rule(who=st.integers(0, SCOPES - 1), rows=ROWS, turns=st.integers(0, 4), rounds=ROUNDS)
    def append(self, who: int, rows: list[tuple[int, int]], turns: int, rounds: int) -> None:
        """Columns. turns: of the sender's thread while the append waits for memory."""
        scope = self.scopes[who]
        self.take_rejected(scope)
        numbers = self.numbered(len(rows), scope)
        values = [b"%0*d" % (size, number) for number, (_, size) in zip(numbers, rows, strict=True)]
        partitions = np.array([partition for partition, _ in rows], np.int32)
        columns = RecordColumns(len(rows), value=pa.array(values, pa.binary()), partition=partitions)
        self.turns = turns

        def completion_for(places: Sequence[int]) -> NumbersThunk:
            return NumbersThunk(self.told, [numbers[place] for place in places])

        try:
            scope.tally.raise_error()
            columns_of(self.producer).append_serialized(Append(scope.tally, TOPIC, columns, 0.0, completion_for))
        except DeliveryError:  # something that it sent has failed
            self.scopes[who] = self.new_scope(who)
        except (DeadlineError, PeerError):  # memory or metadata
            pass
        self.turns = 0
        self.run(rounds, 0)

    def new_scope(self, who: int) -> SendScope:
        """The second one keeps what is rejected."""
        return self.producer.scope(keeps_rejected=who == 1)

    def take_rejected(self, scope: SendScope) -> None:
        for rows in scope.take_rejected():
            numbers = [int(value) for value in rows.columns.value.to_pylist()]  # type: ignore[union-attr]
            assert self.told.failed.keys() >= set(numbers)
            assert self.cluster.splits or all(map(self.cluster.rejects, numbers))

    def meanwhile(self) -> None:
        if accumulator_of(self.producer).memory_waiters:
            for _ in range(50 if self.client.healthy else self.turns):
                self.client.serve_all()
                self.step()

    @rule(rows=ROWS, rounds=ROUNDS)
    def send(self, rows: list[tuple[int, int]], rounds: int) -> None:
        """One by one."""
        for partition, size in rows:
            (number,) = self.numbered(1, self.producer)
            self.producer.send(TOPIC, b"%0*d" % (size, number), partition=partition, on_completion=self.delivered(number))
        self.run(rounds, 0)

    def delivered(self, number: int) -> OnCompletion:
        def on_completion(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            self.told.accepted[number] = metadata.partition
            self.told.outcome(number, metadata.offset, error)

        return on_completion

    def numbered(self, count: int, scope: object) -> list[int]:
        numbers = [next(self.numbers) for _ in range(count)]
        self.scope_of.update(dict.fromkeys(numbers, scope))
        return numbers

    @rule(who=st.integers(0, SCOPES - 1))
    def flush(self, who: int) -> None:
        begin_flush(self.producer, self.scopes[who])

    # The sender, the brokers, and the network between them

    def step(self) -> None:
        """A round of the sender's loop. What is on the wire to a topic that was made anew is stored in the order in which it
        comes: the broker knows no producer, and takes any number. Until the first ack the producer cannot know of it."""
        self.stepped.step()
        for partition in list(self.made_anew):
            queue = accumulator_of(self.producer).queues(TOPIC).get(partition)
            if queue is not None and queue.sequences is not None:
                self.disordered.update(number for batch in queue.sequences.in_flight for number in numbers_in(batch))
            if self.told.acked.keys() & set(self.cluster.logs[partition].numbers()):
                self.made_anew.remove(partition)

    @rule(rounds=ROUNDS, ms=st.sampled_from([0, 1, 20, 110]))
    def run(self, rounds: int, ms: int) -> None:
        for _ in range(rounds):
            self.step()
            self.clock.ms += ms

    @rule(turns=st.lists(TURNS, min_size=1, max_size=8))
    def exchange(self, turns: list[tuple[str, list[str], int]]) -> None:
        """Each broker serves some requests at a time, or none; connections may end then, or partitions move."""
        for what, fates, ms in turns:
            for node in NODES:
                if what != "nothing":
                    self.client.serve(node, fates, count=len(fates))
                if what == f"cut {node}":
                    self.client.cut(node, late=False)
                elif what == "move":
                    self.cluster.move(0, node, told=True, loses=False)
            self.run(2, 0)
            self.clock.ms += ms

    @rule(node=NODE, served=st.integers(0, 3), late=st.booleans())
    def cut(self, node: int, served: int, late: bool) -> None:
        self.client.serve(node, (), count=served)
        self.client.cut(node, late=late)

    @rule(node=NODE, count=st.integers(1, 3))
    def serve_late(self, node: int, count: int) -> None:
        self.client.serve_late(node, count)

    @rule(ms=st.sampled_from([50, 130, 1000, DELIVERY_TIMEOUT_MS - 1000]))
    def pass_time(self, ms: int) -> None:
        self.clock.ms += ms

    @rule(partition=PARTITION, leader=NODE, told=st.booleans(), loses=st.booleans())
    def move(self, partition: int, leader: int, told: bool, loses: bool) -> None:
        self.cluster.move(partition, leader, told=told, loses=loses)

    @rule(
        what=st.sampled_from(
            ["discard", "expire", "down", "up", "locked out", "silent", "no hints", "no leader", "delete", "a day"]
        ),
        which=st.integers(0, 1),
    )
    def seldom(self, what: str, which: int) -> None:
        if what == "discard":
            self.scopes[which].discard()
            self.scopes[which] = self.new_scope(which)
        elif what == "expire":
            self.clock.ms += DELIVERY_TIMEOUT_MS // (1 + which)
        elif what == "down":
            self.cluster.up.discard(which)
            self.client.cut(which, late=False)
        elif what == "locked out":
            self.client.locked_out_by.add(which)
            self.client.cut(which, late=True)
        elif what == "up":
            self.cluster.up, self.cluster.hints, self.client.refuse_metadata = set(NODES), True, False
            self.client.locked_out_by.clear()
            self.cluster.tell()
        elif what == "silent":
            self.client.refuse_metadata = True
        elif what == "no hints":
            self.cluster.hints = False
        elif what == "no leader":
            self.cluster.move(which, NO_LEADER, told=True, loses=False)
        elif what == "delete":
            self.delete_topic()
        elif self.cluster.is_well():
            self.pass_a_day()

    def delete_topic(self) -> None:
        """Or let it come back, made anew."""
        self.client.late.clear()
        self.made_anew = set(range(PARTITIONS))
        if self.cluster.exists:
            self.cluster.delete()
        else:
            self.cluster.exists = True

    def pass_a_day(self) -> None:
        """Brokers forget who has sent nothing for producer.id.expiration.ms."""
        self.cluster.tell()
        self.client.healthy, self.client.refuse_metadata = True, False
        self.client.locked_out_by.clear()
        self.run_until_settled(DELIVERY_TIMEOUT_MS)
        self.client.healthy = False
        self.clock.ms += DAY_MS
        for log in self.cluster.logs:
            log.forget_producers()

    # What must hold

    @invariant()
    def no_sixth_batch_is_on_the_wire(self) -> None:
        if not self.idempotent:
            return
        for queue in accumulator_of(self.producer).queues(TOPIC).values():
            on_wire = [batch for requests in self.client.in_flight.values() for r in requests for batch in batches_of(r.tag)]
            own = [batch for batch in on_wire if batch.queue is queue]
            assert len(own) == len(set(own))
            if queue.sequences is not None and not self.cluster.splits:
                first = queue.sequences.in_flight[0].ordinal if own else 0
                assert all(batch.ordinal < first + 5 for batch in own)

    @invariant()
    def nothing_is_told_that_is_not_so(self) -> None:
        assert not self.told.wrong
        assert self.producer.failed is None

    # The end

    def settle(self) -> None:
        """Faults cease. Time passes no faster than the sender asks for it, and new records get through."""
        if not self.cluster.exists:
            self.delete_topic()
        self.cluster.heal()
        self.client.healthy, self.client.refuse_metadata = True, False
        self.client.locked_out_by.clear()
        self.run_until_settled(SETTLED_MS)
        new: set[int] = set()
        while not new:  # the first may find that the topic is not known any more
            before = set(self.told.accepted)
            self.scopes = [self.new_scope(who) for who in range(SCOPES)]
            self.append(0, [(partition, 4) for partition in range(PARTITIONS)], turns=4, rounds=1)
            new = self.told.accepted.keys() - before
        self.run_until_settled(SETTLED_MS)
        assert {number for number in new if not self.cluster.rejects(number)} <= self.told.acked.keys()
        self.producer.close()
        assert self.producer.failed is None
        assert pool_of(self.producer).available == pool_of(self.producer).total
        self.check_logs()

    def run_until_settled(self, within_ms: int) -> None:
        until_ms = self.clock.ms + within_ms
        self.step()
        while self.stepped.unfinished() or any(self.client.in_flight.values()):
            assert self.clock.ms < until_ms, "something waits for ever"
            self.step()

    def check_logs(self) -> None:
        told = self.told
        assert told.accepted.keys() == told.acked.keys() | told.failed.keys()
        logs = [*self.cluster.past, *enumerate(self.cluster.logs)]
        stored = Counter(number for _, log in logs for number in set(log.numbers()))
        assert told.acked.keys() <= stored.keys(), "acked and not stored"
        assert stored.keys() <= told.accepted.keys()
        for partition, log in logs:
            self.check_log(partition, log)

    def check_log(self, partition: int, log: SimulatedLog) -> None:
        numbers = log.numbers()
        assert all(self.told.accepted[number] == partition for number in numbers)
        if not self.idempotent:
            return
        assert len(set(numbers)) == len(numbers), "stored twice"
        for scope in set(self.scope_of.values()):
            own = [number for number in numbers if self.scope_of[number] is scope and number not in self.disordered]
            assert own == sorted(own), "out of order"


def numbers_in(batch: NumberedBatch) -> list[int]:
    assert isinstance(batch, SealedBatch)
    (decoded,) = decode_batches(b"".join(batch.buffers()))
    return [int(record.value or b"") for record in decoded.records()]


def batches_of(tag: object) -> list[SealedBatch]:
    return tag if isinstance(tag, list) else []


TestSenderMachine = pytest.mark.timeout(600)(SenderMachine.TestCase)
TestSenderMachine.settings = settings(HISTORIES, stateful_step_count=50)
