"""Brokers without sockets or threads: partition logs that keep to Kafka's rules, and answers as a history wants them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.client.cluster import NO_LEADER
from spark_kafka_sink.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.small_batches import FetchedBatch, decode_batches

TOPIC = "t"
NODES = (0, 1)
BATCHES_KEPT = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
NO_PRODUCER = -1


@dataclass(slots=True)
class ProducerState:
    """Kafka's ProducerStateEntry: the epoch, the sequence that comes next, and the last batches by their first sequence."""

    epoch: int
    next_sequence: int
    last: dict[int, tuple[int, int]] = field(default_factory=dict)  # first sequence -> (record count, base offset)


@dataclass(slots=True)
class StoredLog:
    """Kafka's ProducerAppendInfo.checkSequence over a list of values."""

    values: list[bytes | None] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)

    def append(self, batch: FetchedBatch) -> tuple[int, int]:
        """The error code and base offset that a broker would answer; stores the batch if the code is 0 and it is no duplicate."""
        state = self.producers.get(batch.producer_id)
        if batch.producer_id != NO_PRODUCER and state is not None:
            stored = state.last.get(batch.base_sequence) if batch.producer_epoch == state.epoch else None
            if stored is not None and stored[0] == batch.record_count:
                return ErrorCode.NONE, stored[1]
            refused = _refusal(state, batch)
            if refused:
                return refused, -1
        return ErrorCode.NONE, self._store(batch, state)

    def _store(self, batch: FetchedBatch, state: ProducerState | None) -> int:
        base_offset = len(self.values)
        self.values += [record.value for record in batch.records()]
        if state is None or state.epoch != batch.producer_epoch:
            state = self.producers[batch.producer_id] = ProducerState(batch.producer_epoch, 0)
        state.next_sequence = batch.base_sequence + batch.record_count
        state.last[batch.base_sequence] = (batch.record_count, base_offset)
        while len(state.last) > BATCHES_KEPT:
            del state.last[next(iter(state.last))]
        return base_offset


def _refusal(state: ProducerState, batch: FetchedBatch) -> int:
    if batch.producer_epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    due = state.next_sequence if batch.producer_epoch == state.epoch else 0
    return ErrorCode.NONE if batch.base_sequence == due else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@dataclass(frozen=True, slots=True)
class Fate:
    """What one batch meets at its leader: an error, before or after it was stored; `absent`: the answer does not name it."""

    code: ErrorCode = ErrorCode.NONE
    stored: bool = True
    absent: bool = False


FATES = {
    "as Kafka": Fate(),
    "few replicas": Fate(ErrorCode.NOT_ENOUGH_REPLICAS, stored=False),
    "stored, timed out": Fate(ErrorCode.REQUEST_TIMED_OUT),
    "storage error": Fate(ErrorCode.KAFKA_STORAGE_ERROR, stored=False),
    "unknown topic": Fate(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, stored=False),
    "forbidden": Fate(ErrorCode.TOPIC_AUTHORIZATION_FAILED, stored=False),  # for good
    "stored, not named": Fate(absent=True),
}


@dataclass(slots=True)
class SimulatedLog:
    """One partition. What was answered with success is on every replica (`committed` batches); a new leader may lack the rest."""

    stored: StoredLog = field(default_factory=StoredLog)
    batches: list[FetchedBatch] = field(default_factory=list)
    committed: int = 0
    forgotten: int = 0  # batches that stood when the broker forgot its producers

    def append(self, batch: FetchedBatch) -> tuple[int, int]:
        before = len(self.stored.values)
        code, base_offset = self.stored.append(batch)
        if len(self.stored.values) > before:
            self.batches.append(batch)
        return code, base_offset

    def forget_producers(self) -> None:
        self.stored.producers.clear()
        self.forgotten = len(self.batches)

    def lose_what_is_not_committed(self) -> None:
        del self.batches[self.committed :]
        self.stored = StoredLog()
        for place, batch in enumerate(self.batches):
            if place == self.forgotten:
                self.stored.producers.clear()
            self.stored.append(batch)
        if self.forgotten >= len(self.batches):
            self.stored.producers.clear()

    def numbers(self) -> list[int]:
        return [int(value or b"") for value in self.stored.values]


class SimulatedCluster:
    """One topic. `strict`: a producer that is not known has to begin with sequence 0, as brokers before KIP-360 want it; others
    take any number. max_batch: bytes; rejects: every so many-th record is INVALID_RECORD, and named; 0: none."""

    def __init__(self, partitions: int, *, strict: bool, max_batch: int, rejects: int) -> None:
        self.leaders = [partition % len(NODES) for partition in range(partitions)]
        self.epochs = [0] * partitions
        self.told = list(self.leaders)  # by Metadata, with `told_epochs`
        self.told_epochs = [0] * partitions
        self.up = set(NODES)
        self.exists = True
        self.logs = [SimulatedLog() for _ in range(partitions)]
        self.past: list[tuple[int, SimulatedLog]] = []  # logs of a topic that was deleted
        self.hints = True  # refusals name the new leader (KIP-951)
        self.first_epoch = 0
        self.unlucky: dict[int, int] = {}  # records that so many more answers do not name
        self.names_rejected = True  # brokers before 2.4 do not say which records they reject
        self.current: tuple[int, int] | None = None  # the identity that may write, where all writes are of transactions
        self._strict, self._max_batch, self._rejects = strict, max_batch, rejects
        self._producer_ids = itertools.count(4000)

    # What happens to it

    def move(self, partition: int, leader: int, *, told: bool, loses: bool) -> None:
        """Another leader; `told`: Metadata says so at once. loses: what was not on every replica is gone."""
        self.leaders[partition] = leader
        self.epochs[partition] += 1
        if loses:
            self.logs[partition].lose_what_is_not_committed()
        if told:
            self.tell()

    def is_well(self) -> bool:
        return self.exists and self.up == set(NODES) and NO_LEADER not in self.leaders

    @property
    def splits(self) -> bool:
        return self._max_batch < 1 << 20

    def tell(self) -> None:
        self.told, self.told_epochs = list(self.leaders), list(self.epochs)

    def delete(self) -> None:
        self.exists = False
        self.past += enumerate(self.logs)
        self.logs = [SimulatedLog() for _ in self.logs]

    def heal(self) -> None:
        self.up = set(NODES)
        for partition, leader in enumerate(self.leaders):
            if leader == NO_LEADER:
                self.move(partition, 0, told=False, loses=False)
        self.tell()

    # What it answers

    def producer_id(self) -> tuple[int, int]:
        epoch, self.first_epoch = self.first_epoch, 0
        return next(self._producer_ids), epoch

    def metadata(self) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=node, host="localhost", port=9092 + node) for node in sorted(self.up)]
        partitions = [
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else 0,
                partition_index=partition,
                leader_id=leader,
                leader_epoch=epoch,
            )
            for partition, (leader, epoch) in enumerate(zip(self.told, self.told_epochs, strict=True))
        ]
        code = 0 if self.exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = MetadataResponseTopic(error_code=code, name=TOPIC, partitions=partitions if self.exists else [])
        return MetadataResponse(brokers=brokers, cluster_id="simulated", controller_id=0, topics=[topic])

    def produce(self, node: int, data: Sequence[tuple[int, bytes]], fates: Iterator[str]) -> ProduceResponse:
        """`data`: partitions, each with the bytes of one batch. `fates`: theirs by name; when they end all goes as in Kafka."""
        said = []
        for partition, records in data:
            (batch,) = decode_batches(records)
            fate = FATES[next(fates, "as Kafka")]
            if self._is_unlucky(batch):
                fate = FATES["stored, not named"]
            answer = self._partition(node, partition, batch, fate)
            if not fate.absent:
                said.append(answer)
        endpoints = [NodeEndpoint(node, "localhost", 9092 + node) for node in sorted(self.up)]
        return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=said)], node_endpoints=endpoints)

    def _partition(self, node: int, partition: int, batch: FetchedBatch, fate: Fate) -> PartitionProduceResponse:
        code, base_offset = self._refusal(node, partition, batch), -1
        rejected = self._rejected(batch) if not code else []
        if not code and not rejected and (fate.stored or not fate.code):
            log = self.logs[partition]
            code, base_offset = log.append(batch)
            if not code and not fate.code and not fate.absent:
                log.committed = len(log.batches)
        if not code:
            code = ErrorCode.INVALID_RECORD if rejected else fate.code
        moved = code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.hints and self.leaders[partition] != NO_LEADER
        return PartitionProduceResponse(
            index=partition,
            error_code=code,
            base_offset=-1 if code else base_offset,
            log_start_offset=0,
            record_errors=[BatchIndexAndErrorMessage(row, "not wanted") for row in rejected if self.names_rejected],
            current_leader=LeaderIdAndEpoch(self.leaders[partition], self.epochs[partition]) if moved else None,
        )

    def _refusal(self, node: int, partition: int, batch: FetchedBatch) -> int:
        """Before the records and the numbers are looked at, but for a producer that a strict broker does not know."""
        if not self.exists:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.leaders[partition] != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.current not in (None, (batch.producer_id, batch.producer_epoch)):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.size > self._max_batch:
            return ErrorCode.MESSAGE_TOO_LARGE
        known = batch.producer_id == NO_PRODUCER or batch.producer_id in self.logs[partition].stored.producers
        return ErrorCode.UNKNOWN_PRODUCER_ID if self._strict and not known and batch.base_sequence else ErrorCode.NONE

    def _is_unlucky(self, batch: FetchedBatch) -> bool:
        if not self.unlucky:
            return False
        number = int(batch.records()[0].value or b"")
        left = self.unlucky.get(number, 0)
        self.unlucky[number] = left - 1
        return left > 0

    def _rejected(self, batch: FetchedBatch) -> list[int]:
        if not self._rejects:
            return []
        return [row for row, record in enumerate(batch.records()) if self.rejects(int(record.value or b""))]

    def rejects(self, number: int) -> bool:
        return self._rejects > 0 and number % self._rejects == 0
