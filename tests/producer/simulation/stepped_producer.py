"""A whole Producer over a SimulatedCluster, whose sender's thread runs only when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.request_size import CompressionRatios
from spark_kafka_sink.producer.base import lifecycle as lifecycle_module
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from tests.producer.simulation.client import SimulatedClient
from tests.producer.simulation.clock import VirtualClock
from tests.producer.simulation.cluster import SimulatedCluster

CHUNK = 64


class SteppedThread:
    """Stands in for the sender's thread: who joins it runs it to its end."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target = target
        self._alive = False
        self.ident: int | None = None  # while it is its turn

    def start(self) -> None:
        self._alive = True

    def is_alive(self) -> bool:
        return self._alive

    def join(self, timeout_s: float | None = None) -> None:
        if self._alive:
            with self.turn():
                self._target()
            self._alive = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.ident = threading.get_ident()
        try:
            yield
        finally:
            self.ident = None


class SteppedProducer:
    """`step` is one round of the sender's loop. Memory comes in small chunks, so that it runs out.

    Until `end`, its clock is that of all producers. If it cannot be made, nothing is left behind.
    """

    def __init__(
        self, config: ProducerConfig, cluster: SimulatedCluster, clock: VirtualClock, *, optimistic: bool = False
    ) -> None:
        """optimistic: each batch is expected to be a byte large, so most of what is drained finds no room in its request."""
        self._cluster = cluster
        self.clock = clock
        threads = SimpleNamespace(Thread=self._made_thread, get_ident=threading.get_ident, Lock=threading.Lock)
        # Who waits for the thread's end runs it.
        end = SimpleNamespace(wait=lambda done, timeout_s: self._thread.join(timeout_s), notify_all=lambda: None)
        with ExitStack() as patches:
            patches.enter_context(clock.installed())
            patches.enter_context(patch.object(producer_module, "CHUNK_SIZE", CHUNK))
            patches.enter_context(patch.object(producer_module, "NetworkClient", self._made_client))
            patches.enter_context(patch.object(producer_module, "Sender", self._made_sender))
            if optimistic:
                patches.enter_context(patch.object(CompressionRatios, "size", lambda ratios, batch: 1.0))
            patches.enter_context(patch.object(lifecycle_module, "threading", threads))
            patches.enter_context(patch.object(lifecycle_module, "Changes", lambda: end))
            self.producer = Producer(config)
            self._patches = patches.pop_all()

    def _made_client(self, config: ProducerConfig, metadata: ProducerMetadata) -> SimulatedClient:
        self.client = SimulatedClient(self._cluster, self.clock, config, metadata)
        return self.client

    def _made_sender(
        self, lifecycle: Lifecycle, client: Any, accumulator: RecordAccumulator, records: RecordBuffer, *others: Any
    ) -> Sender:
        self._accumulator, self._records = accumulator, records
        self._sender = Sender(lifecycle, client, accumulator, records, *others)
        return self._sender

    def _made_thread(self, target: Callable[[], None], name: str, daemon: bool) -> SteppedThread:
        self._thread = SteppedThread(target, name, daemon)
        return self._thread

    def step(self) -> None:
        if self._thread.ident is None and self._thread.is_alive() and not self._sender.has_ended():
            with self._thread.turn():
                self._sender.run_once(self.clock.ms)

    def unfinished(self) -> bool:
        return self._accumulator.has_incomplete() or self._records.has_rows()

    def end(self) -> None:
        self._patches.close()


@dataclass
class Told:
    """What was told of each record, which is a number; `wrong`: what must not be told."""

    accepted: dict[int, int] = field(default_factory=dict)  # in a batch: number -> partition
    acked: dict[int, int] = field(default_factory=dict)  # number -> offset
    failed: dict[int, KafkaSinkError] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def outcome(self, number: int, offset: int, error: KafkaSinkError | None) -> None:
        if number in self.acked or number in self.failed:
            self.wrong.append(f"{number} was told twice")
        if error is None:
            self.acked[number] = offset
        else:
            self.failed[number] = error


@dataclass
class NumbersThunk:
    """Hears for some numbers of an append what became of them."""

    told: Told
    numbers: Sequence[int]
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.numbers)

    def settled(self) -> None: ...

    def assigned(self, result: ProduceResult, first: int) -> None:
        self.told.accepted.update(dict.fromkeys(self.numbers, result.partition))

    def completed(self, result: ProduceResult, first: int) -> None:
        for place, number in enumerate(self.numbers, first):
            offset = -1 if result.base_offset < 0 else result.base_offset + place
            self.told.outcome(number, offset, result.error)

    def split(self, count: int) -> tuple[NumbersThunk, NumbersThunk]:
        return NumbersThunk(self.told, self.numbers[:count]), NumbersThunk(self.told, self.numbers[count:])
