"""A transactional producer that does what a test says, step by step, by raw requests of any version."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import fetch, group_offsets, list_transactions, produce, transactions
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest
from spark_kafka_sink.protocol.apis.transactions import AddOffsetsToTxnRequest, EndTxnRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.records.small_batches import NewRecord, decode_batches, small_batch
from tests.broker.network.client import Client
from tests.waiting import until

NOBODY = ProducerIdAndEpoch(-1, -1)
_NOT_YET = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Answer(NamedTuple):
    code: ErrorCode
    producer: ProducerIdAndEpoch


class Transactor:
    """`identity`: its transactional id. All requests go to one broker over one connection."""

    def __init__(self, client: Client, identity: str, topic: str) -> None:
        self._client = client
        self.identity = identity
        self.topic = topic

    def ask(self, key: ApiKey, version: int, body: Message) -> Any:
        return self._client.ask(key, version, body)

    def find(self) -> None:
        """Until there are coordinators of the id and of the group of the same name, and leaders of the topic."""
        for kind in (1, 0):
            request = FindCoordinatorRequest(key=self.identity, key_type=kind)
            until(partial(self._found, request), lambda code: bool(code == ErrorCode.NONE), "a coordinator")
        until(lambda: self.describe().error_code, lambda code: code not in _NOT_YET, "a coordinator that is loaded")
        for partition in (0, 1):
            until(partial(self._fetch_code, partition), lambda code: bool(code == ErrorCode.NONE), "a leader")

    def _fetch_code(self, partition: int) -> Any:
        return self._fetched(partition).error_code

    def _found(self, request: FindCoordinatorRequest) -> Any:
        return self.ask(ApiKey.FIND_COORDINATOR, 3, request).error_code

    def settled(self, ask: Callable[[], Answer]) -> Answer:
        """The answer when the markers are written, or the coordinator is ready."""
        return until(ask, lambda answer: answer.code not in _NOT_YET, "still not settled")

    def settled_codes(self, ask: Callable[[], list[ErrorCode]]) -> list[ErrorCode]:
        return until(ask, lambda codes: not _NOT_YET.intersection(codes), "still not settled")

    # Ids and partitions

    def init(
        self, expected: ProducerIdAndEpoch = NOBODY, *, timeout_ms: int = 60_000, version: int = 5, identity: str | None = None
    ) -> Answer:
        name = self.identity if identity is None else identity
        return self._initialized(InitProducerIdRequest(name, timeout_ms, *expected), version)

    def init_idempotent(self) -> Answer:
        return self._initialized(InitProducerIdRequest(None), 5)

    def _initialized(self, request: InitProducerIdRequest, version: int) -> Answer:
        body = self.ask(ApiKey.INIT_PRODUCER_ID, version, request)
        return Answer(ErrorCode(body.error_code), ProducerIdAndEpoch(body.producer_id, body.producer_epoch))

    def add(self, who: ProducerIdAndEpoch, *partitions: int, version: int = 3) -> list[ErrorCode]:
        """One code for each partition."""
        return self.add_topics(who, [transactions.AddPartitionsToTxnTopic(self.topic, partitions)], version)

    def add_topics(
        self, who: ProducerIdAndEpoch, topics: Sequence[transactions.AddPartitionsToTxnTopic], version: int = 3
    ) -> list[ErrorCode]:
        request = transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.identity,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.producer_epoch,
            v3_and_below_topics=topics,
        )
        body = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        return _codes(body.results_by_topic_v3_and_below)

    def as_broker(self, who: ProducerIdAndEpoch, *partitions: int, verify_only: bool, version: int = 5) -> list[ErrorCode]:
        """AddPartitionsToTxn as brokers ask one another."""
        topics = [transactions.AddPartitionsToTxnTopic(self.topic, partitions)]
        transaction = transactions.AddPartitionsToTxnTransaction(self.identity, *who, verify_only, topics)
        body = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions.AddPartitionsToTxnRequest(transactions=[transaction]))
        return _codes(body.results_by_transaction[0].topic_results)

    def add_offsets(self, who: ProducerIdAndEpoch, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.identity, *who, group_id=self.identity)
        return ErrorCode(self.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request).error_code)

    # Records and offsets

    def produce(
        self, who: ProducerIdAndEpoch, sequence: int = 0, *, value: str = "x", partition: int = 0, version: int = 12
    ) -> ErrorCode:
        batch = small_batch(
            [NewRecord(None, value.encode(), int(time.time() * 1000))],
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = produce.TopicProduceData(self.topic, partition_data=[produce.PartitionProduceData(partition, [batch])])
        body = self.ask(ApiKey.PRODUCE, version, produce.ProduceRequest(self.identity, topic_data=[data]))
        return ErrorCode(body.responses[0].partition_responses[0].error_code)

    def committed(self, partition: int = 0) -> list[str]:
        """The values that a consumer of committed records finds, up to where it may read."""
        answer = self._fetched(partition)
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        return _committed(b"".join(answer.records or ()), aborted)

    def _fetched(self, partition: int) -> Any:
        asked = fetch.FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(max_wait_ms=0, isolation_level=1, topics=[fetch.FetchTopic(self.topic, partitions=[asked])])
        return self.ask(ApiKey.FETCH, 10, request).responses[0].partitions[0]

    def commit_offset(self, who: ProducerIdAndEpoch, offset: int, version: int = 5) -> ErrorCode:
        partition = transactions.TxnOffsetCommitRequestPartition(0, offset)
        topic = transactions.TxnOffsetCommitRequestTopic(self.topic, [partition])
        request = transactions.TxnOffsetCommitRequest(self.identity, self.identity, *who, topics=[topic])
        body = self.ask(ApiKey.TXN_OFFSET_COMMIT, version, request)
        return ErrorCode(body.topics[0].partitions[0].error_code)

    def offset(self) -> int:
        """What the group of the same name has committed; -1 for nothing."""
        topic = group_offsets.OffsetFetchRequestTopic(self.topic, [0])
        request = group_offsets.OffsetFetchRequest(group_id=self.identity, topics=[topic])
        body = self.ask(ApiKey.OFFSET_FETCH, 7, request)
        return int(body.topics[0].partitions[0].committed_offset)

    # Ends and looks

    def end(self, who: ProducerIdAndEpoch, committed: bool, version: int = 5) -> Answer:
        body = self.ask(ApiKey.END_TXN, version, EndTxnRequest(self.identity, *who, committed=committed))
        return Answer(ErrorCode(body.error_code), ProducerIdAndEpoch(body.producer_id, body.producer_epoch))

    def commit(self, who: ProducerIdAndEpoch, version: int = 5) -> Answer:
        return self.end(who, True, version)

    def abort(self, who: ProducerIdAndEpoch, version: int = 5) -> Answer:
        return self.end(who, False, version)

    def describe(self, identity: str | None = None) -> Any:
        request = transactions.DescribeTransactionsRequest([self.identity if identity is None else identity])
        return self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states[0]

    def state(self) -> str:
        """As DescribeTransactions has it."""
        return str(self.describe().transaction_state)

    def settle(self) -> str:
        return until(self.state, lambda state: not state.startswith("Prepare"), "still being prepared")

    def listed(self, **filters: Any) -> Any:
        return self.ask(ApiKey.LIST_TRANSACTIONS, 2, list_transactions.ListTransactionsRequest(**filters))


def _codes(topics: Any) -> list[ErrorCode]:
    # Kafka keeps partitions in sets.
    by_index = sorted(
        (each.partition_index, each.partition_error_code) for topic in topics for each in topic.results_by_partition
    )
    return [ErrorCode(code) for _, code in by_index]


def _committed(data: bytes, aborted: Collection[tuple[int, int]]) -> list[str]:
    """As a consumer does it: a transaction in `aborted` lasts from its first offset to its producer's next marker."""
    values: list[str] = []
    pending = set(aborted)
    for batch in decode_batches(data):
        is_aborted = {each for each in pending if each[0] == batch.producer_id and each[1] <= batch.base_offset}
        if batch.is_control:
            pending -= is_aborted
        elif not is_aborted:
            values += [(record.value or b"").decode() for record in batch.records()]
    return values
