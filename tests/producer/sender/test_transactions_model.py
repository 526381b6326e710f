"""The whole producer but for its sockets, in transactions that keep rejected records, through faults of brokers and network.

A transaction that is committed has each good record once and in order, and gave each rejected one back. Others are aborted.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import DeadlineError, DeliveryError, TransactionError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.base import lifecycle
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.transactions.states import State
from spark_kafka_sink.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.apis.transactions import EndTxnRequest, EndTxnResponse
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.records.columns import RecordColumns
from tests.every import every
from tests.producer.histories import HISTORIES, one_history
from tests.producer.inside import accumulator_of, manager_of, metadata_of
from tests.producer.simulation import stepped_producer
from tests.producer.simulation.clock import VirtualClock
from tests.producer.simulation.cluster import FATES, TOPIC, SimulatedCluster
from tests.producer.simulation.coordinator import topic_ids
from tests.producer.simulation.stepped_producer import SteppedProducer
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

PARTITIONS = 2
PRODUCER_ID = 4000
UNDER_WAY = (State.INITIALIZING, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)
SETTINGS = {
    "bootstrap.servers": "localhost:9092",
    "transactional.id": "x",
    "max.block.ms": 20_000,
    "request.timeout.ms": 1000,
    "delivery.timeout.ms": 6_000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 100,
    "linger.ms": 0,
    # A poll with nothing to do lets a minute pass. A topic that was unused for five of them would be forgotten, and an append
    # would wait for it by real time while the brokers are not healthy.
    "metadata.max.idle.ms": 2**40,
}
FATE = st.sampled_from(["as Kafka"] * 6 + [fate for fate in FATES if fate != "forbidden"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=8)),
        st.tuples(st.just("serve"), st.tuples(st.integers(0, 1), st.lists(FATE, min_size=1, max_size=4))),
        st.tuples(st.just("serve"), st.tuples(st.integers(0, 1), st.lists(FATE, min_size=1, max_size=4))),
        st.tuples(st.just("run"), st.sampled_from([0, 110])),
        st.tuples(st.just("cut"), st.tuples(st.integers(0, 1), st.booleans())),
        st.tuples(st.just("late"), st.integers(0, 1)),
        st.tuples(st.just("move"), st.integers(0, 1)),
    ),
    min_size=4,
    max_size=25,
)


class Transactions:
    """A producer in transactions of version 2 over a SimulatedCluster, whose coordinator fails never."""

    def __init__(self, stepped: SteppedProducer, cluster: SimulatedCluster) -> None:
        self.stepped, self.clock, self.cluster = stepped, stepped.clock, cluster
        self.producer: Producer = stepped.producer
        self.client = stepped.client
        self.client.coordinator, self.client.on_wakeup = self.coordinate, self.run_until_quiet
        self.epoch = -1
        self.numbers = itertools.count(1)
        self.outcomes: dict[int, bool] = {}  # by epoch: whether it was committed
        self.told: dict[int, tuple[dict[int, list[int]], list[int]]] = {}  # by epoch: appended by partition, and given back
        self.client.healthy = True
        metadata_of(self.producer).add(TOPIC, self.clock.ms)
        self.stepped.step()
        self.producer.init_transactions()

    def coordinate(self, body: Any) -> Message:
        match body:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(coordinators=[Coordinator("x", 0, "localhost", 9092, 0, None)])
            case InitProducerIdRequest():
                self.bump()
                return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
            case EndTxnRequest():
                self.outcomes[self.epoch] = body.committed
                self.bump()
                return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
            case MetadataRequest():
                return topic_ids(body)
        raise AssertionError(body)

    def bump(self) -> None:
        """Markers carry the next epoch to the leaders (KIP-890)."""
        self.epoch += 1
        self.cluster.current = (PRODUCER_ID, self.epoch)

    def run_until_quiet(self) -> None:
        for _ in range(400 if self.client.healthy else 0):
            self.stepped.step()
            under_way = hasattr(self, "told") and manager_of(self.producer).state in UNDER_WAY
            if not (under_way or self.stepped.unfinished() or any(self.client.in_flight.values())):
                return

    def transact(self, steps: list[tuple[str, Any]]) -> None:
        epoch = self.epoch
        appended: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.told[epoch] = appended, []
        self.producer.begin_transaction()
        scope = self.producer.scope(keeps_rejected=True)
        try:
            self.client.healthy = False
            for what, argument in steps:
                self.step(scope, what, argument, appended)
            self.heal()
            scope.flush(20)
            self.told[epoch][1].extend(
                int(value)
                for rows in scope.take_rejected()
                for value in rows.columns.value.to_pylist()  # type: ignore[union-attr]
            )
            self.producer.commit_transaction()
        except (DeliveryError, DeadlineError, TransactionError):
            self.heal()
            scope.discard()
            self.producer.abort_transaction()
        finally:
            self.heal()
            scope.discard()
            scope.close()

    def heal(self) -> None:
        self.cluster.heal()
        self.client.healthy = True

    def step(self, scope: SendScope, what: str, argument: Any, appended: dict[int, list[int]]) -> None:
        if what == "append":
            numbers = [next(self.numbers) for _ in argument]
            values = pa.array([b"%04d" % number for number in numbers])
            scope.append(TOPIC, RecordColumns(len(numbers), value=values, partition=np.array(argument, np.int32)))
            for number, partition in zip(numbers, argument, strict=True):
                appended[partition].append(number)
            accumulator_of(self.producer).flush(scope.tally)
        elif what == "serve":
            self.client.serve(argument[0], argument[1], count=len(argument[1]))
        elif what == "cut":
            self.client.cut(argument[0], late=argument[1])
        elif what == "late":
            self.client.serve_late(argument, 1)
        elif what == "move":
            self.cluster.move(argument, 1 - self.cluster.leaders[argument], told=True, loses=False)
        for _ in range(8):
            self.stepped.step()
        self.clock.ms += argument if what == "run" else 0

    def check(self) -> None:
        for partition, log in enumerate(self.cluster.logs):
            for epoch, committed in self.outcomes.items():
                batches = [batch for batch in log.batches if batch.producer_epoch == epoch]
                stored = [int(record.value or b"") for batch in batches for record in batch.records()]
                appended = self.told[epoch][0][partition]
                if committed:
                    assert stored == [number for number in appended if not self.cluster.rejects(number)]
        for epoch, (of_partitions, kept) in self.told.items():
            if self.outcomes.get(epoch):
                numbers = sorted(itertools.chain.from_iterable(of_partitions.values()))
                assert sorted(kept) == [number for number in numbers if self.cluster.rejects(number)]

    def end(self) -> None:
        self.heal()
        self.producer.close()


@contextmanager
def transactions(batch_size: int, rejects: int, max_batch: int, *, names: bool) -> Iterator[Transactions]:
    cluster = SimulatedCluster(PARTITIONS, strict=False, max_batch=max_batch, rejects=rejects)
    cluster.names_rejected = names
    with one_history(), ExitStack() as ends:
        ends.callback(logging.disable, logging.NOTSET)
        logging.disable(logging.ERROR)
        stepped = SteppedProducer(producer_config({**SETTINGS, "batch.size": batch_size}), cluster, VirtualClock())
        ends.callback(stepped.end)
        made = Transactions(stepped, cluster)
        ends.callback(made.end)
        yield made


def test_a_history_that_is_cut_off_as_it_begins_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers of later tests would have its clock, and no thread of their own."""

    def cut_off(*_: object) -> None:
        raise AssertionError("this history takes too long")

    for owner, name in ((Transactions, "coordinate"), (stepped_producer, "Producer")):
        with monkeypatch.context() as begins:
            begins.setattr(owner, name, cut_off)
            with pytest.raises(AssertionError, match="takes too long"), transactions(1, 2, 1 << 20, names=True):
                pass
        found = vars(lifecycle)
        assert (found["monotonic_ms"], found["threading"]) == (monotonic_ms, threading)
        assert not logging.root.manager.disable


@pytest.mark.timeout(600)
@settings(HISTORIES)
@given(
    histories=st.lists(STEPS, min_size=1, max_size=3),
    batch_size=st.sampled_from([1, 1, 60, 200]),
    rejects=st.sampled_from([2, 3, 5]),
    max_batch=st.sampled_from([1 << 20, 1 << 20, 120]),
    names=st.booleans(),
)
@example([[("append", [0] * 8), ("serve", (0, ["as Kafka"])), ("append", [0] * 8)]], 1, 3, 1 << 20, True)
def test_what_is_committed_has_each_good_record_once_in_order_and_the_others_were_given_back(
    histories: list[list[tuple[str, Any]]], batch_size: int, rejects: int, max_batch: int, names: bool
) -> None:
    with transactions(batch_size, rejects, max_batch, names=names) as made:
        for steps in histories:
            made.transact(steps)
        made.check()


@pytest.mark.parametrize("batch_size", whole_but([1, 60, 200], [60], "3 s each; one size is in make test"))
@every("rejects", [1, 3])
@every("names", [True, False])
def test_without_faults_every_transaction_is_committed(batch_size: int, rejects: int, names: bool) -> None:
    with transactions(batch_size, rejects, 1 << 20, names=names) as made:
        for _ in range(3):
            rows = [("append", [0, 1] * 8), ("run", 0), ("serve", (0, ["as Kafka"] * 3)), ("serve", (1, ["as Kafka"] * 2))]
            made.transact(rows * 3)
        assert list(made.outcomes.values()) == [True] * 3
        made.check()
