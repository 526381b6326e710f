"""A transaction coordinator over a log in memory and partitions that only know producers, for histories in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.transaction.transaction_coordinator import TransactionCoordinator
from spark_kafka_sink.broker.transaction.transaction_marker_channel_manager import MarkerRoute
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch, TransactionMetadata
from spark_kafka_sink.broker.transaction.transaction_state_manager import key_of, value_of
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.memory_coordinator_log import MemoryCoordinatorLog
from tests.broker.virtual_timer import VirtualTimer

A = TopicPartition("a", 0)
B = TopicPartition("b", 1)


@dataclass
class Partitions:
    """What markers were written where; `refusals` as those of the log, for one partition each."""

    markers: dict[TopicPartition, list[EndTransactionMarker]] = field(default_factory=dict)
    refusals: dict[TopicPartition, list[ErrorCode]] = field(default_factory=dict)
    deleted: set[TopicPartition] = field(default_factory=set)
    on_marker: Callable[[TopicPartition, EndTransactionMarker], None] = lambda partition, marker: None

    def write(self, marker: EndTransactionMarker, partitions: Sequence[tuple[str, int]]) -> None:
        for partition in (TopicPartition(*each) for each in partitions):
            if self.refusals.get(partition):
                raise ApiException(self.refusals[partition].pop(0))
            self.markers.setdefault(partition, []).append(marker)
            self.on_marker(partition, marker)

    def exist(self, topic: str, index: int) -> bool:
        return TopicPartition(topic, index) not in self.deleted


class _Executor:
    """Work of a coordinator that was killed is not done."""

    def __init__(self, timer: VirtualTimer) -> None:
        self._timer = timer
        self.is_killed = False

    def submit(self, run: Callable[[], None]) -> None:
        self._timer.after(0, lambda: None if self.is_killed else run())


class World:
    """`settle()` lets the markers be written; until then the coordinator has only decided."""

    def __init__(self, **settings: int) -> None:
        self.timer = VirtualTimer()
        self.log = MemoryCoordinatorLog("__transaction_state")
        self.partitions = Partitions()
        self.config = BrokerConfig(transaction_version=2, **settings)  # type: ignore[arg-type]
        self._producer_ids = iter(range(1000, 10**9))
        self.when_asked_for_the_time: Callable[[], object] | None = None
        self.start()

    def start(self) -> None:
        self.executor = _Executor(self.timer)
        self.coordinator = self.unloaded()
        self.coordinator.load()

    def unloaded(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.log,
            self.timer,
            self.config,
            self._wall_ms,
            lambda: next(self._producer_ids),
            MarkerRoute(self.executor.submit, self.partitions.write, self.partitions.exist),
        )

    def _wall_ms(self) -> int:
        """What another thread does just now is done first, once."""
        run, self.when_asked_for_the_time = self.when_asked_for_the_time, None
        if run is not None:
            run()
        return self.timer.wall_ms()

    def restart(self) -> None:
        """As after SIGKILL: what is in the log is known, and nothing else."""
        self.executor.is_killed = True
        self.coordinator.stop()
        self.start()

    def settle(self) -> None:
        self.timer.advance(0)

    def remember(self, metadata: TransactionMetadata) -> None:
        """As if the coordinator had got there long ago."""
        partition = self.log.partition_for(metadata.transactional_id)
        record = (key_of(metadata.transactional_id), value_of(metadata, self.config.release.transaction_version))
        self.log.append(partition, [record])
        self.restart()

    def init(self, expected: ProducerIdAndEpoch | None = None) -> ProducerIdAndEpoch:
        return self.coordinator.init_producer_id("t", 60_000, expected)

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> None:
        self.coordinator.add_partitions("t", producer, partitions, client_version=2)

    def end(self, producer: ProducerIdAndEpoch, committed: bool) -> ProducerIdAndEpoch:
        return self.coordinator.end_transaction("t", producer, committed, client_version=2)

    def state(self) -> str:
        return self.coordinator.describe("t").state.state_name

    def ended_in(self, partition: TopicPartition) -> list[bool]:
        return [marker.committed for marker in self.partitions.markers.get(partition, [])]


def code_of(run: Callable[[], object]) -> ErrorCode:
    """What a client would be told."""
    try:
        run()
    except ApiException as error:
        return error.code
    return ErrorCode.NONE
