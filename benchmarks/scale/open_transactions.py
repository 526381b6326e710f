"""Opens the transactions of many tasks with pipelined requests, because a producer for each task would take minutes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest, only_one
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.coordinator_rounds import CoordinatorRequest, CoordinatorRounds, Reply
from spark_kafka_sink.exactly_once.transaction_client import INITIALISING
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.apis.produce import (
    PRODUCE,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.records.small_batches import NewRecord, small_batch

ROWS = 2  # of a task
_TIMEOUT_MS = 15 * 60 * 1000
_PRODUCE = PRODUCE.limited_to(12, 12)  # adds its partition to the transaction (KIP-890)
_AT_ONCE = 200


@dataclass(slots=True)
class OpenTransactions:
    """The work of a micro-batch's tasks up to the commit message: InitProducerId, one batch of rows, and the handle.

    init_s, produce_s: the duration of these requests the last time.
    """

    client: ClusterClient
    topic: str
    partitions: int
    init_s: float = 0.0
    produce_s: float = 0.0

    def open(self, ids: Sequence[str], deadline: float) -> tuple[PreparedTransaction, ...]:
        """Begins a transaction for each id, writes ROWS rows to one partition in it, and leaves it open."""
        begun = time.perf_counter()
        known = self._initialized(ids, deadline)
        self.init_s = time.perf_counter() - begun
        begun = time.perf_counter()
        for start in range(0, len(ids), _AT_ONCE):
            self._produce(
                [(each, known[each], (start + at) % self.partitions) for at, each in enumerate(ids[start:][:_AT_ONCE])], deadline
            )
        self.produce_s = time.perf_counter() - begun
        return tuple(
            PreparedTransaction(
                TransactionHandle(each, *known[each], 2, ROWS, ((self.topic, str(at % self.partitions)),)), at, at
            )
            for at, each in enumerate(ids)
        )

    def _initialized(self, ids: Sequence[str], deadline: float) -> dict[str, tuple[int, int]]:
        def ask(node_id: int, some: Sequence[str]) -> Iterable[CoordinatorRequest[InitProducerIdResponse]]:
            return [_init(node_id, each) for each in some]

        found = {}
        for each, reply in CoordinatorRounds(self.client, ask, deadline).run(ids).items():
            assert not reply.code, error_facts(reply.code).name
            found[each] = reply.value.producer_id, reply.value.producer_epoch
        return found

    def _produce(self, left: list[tuple[str, tuple[int, int], int]], deadline: float) -> None:
        while left:
            requests = [
                ClusterRequest(self.client.leader(self.topic, at, deadline), _PRODUCE, self._rows(each, producer, at))
                for each, producer, at in left
            ]
            again = []
            for one, answer in zip(left, self.client.try_many(requests, deadline), strict=True):
                assert isinstance(answer, ProduceResponse), answer
                said = only_one(only_one(answer.responses, PRODUCE.key, "topic").partition_responses, PRODUCE.key, "partition")
                assert not said.error_code or error_facts(said.error_code).retriable, error_facts(said.error_code).name
                if said.error_code:
                    again.append(one)
            left = again

    def _rows(self, transactional_id: str, producer: tuple[int, int], partition: int) -> ProduceRequest:
        now_ms = time.time_ns() // 1_000_000
        rows = [NewRecord(None, f"{transactional_id} {row}".encode(), now_ms) for row in range(ROWS)]
        batch = small_batch(rows, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
        data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=partition, records=[batch])])
        return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])


def _init(node_id: int, each: str) -> CoordinatorRequest[InitProducerIdResponse]:
    request = InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=_TIMEOUT_MS)

    def read(answer: Message) -> dict[str, Reply[InitProducerIdResponse]]:
        assert isinstance(answer, InitProducerIdResponse)
        return {each: Reply(answer.error_code, answer)}

    return CoordinatorRequest(ClusterRequest(node_id, INITIALISING, request), [each], read)
