"""The sender's thread: takes what is ready from the accumulator, sends it, and hands each answer on."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import BrokerError, KafkaSinkError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.compression_ratios import CompressionRatios
from spark_kafka_sink.producer.accumulator.partition_queue import PartitionQueue
from spark_kafka_sink.producer.accumulator.producer_batch import NO_PRODUCER, OpenBatch, ProducerIdAndEpoch, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch, RecordAccumulator
from spark_kafka_sink.producer.accumulator.request_size import batch_overhead, request_overhead
from spark_kafka_sink.producer.accumulator.sequences import PartitionSequences
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.sender.delivery import Delivery
from spark_kafka_sink.producer.sender.error_policy import Action
from spark_kafka_sink.producer.sender.outage_log import OutageLog
from spark_kafka_sink.producer.sender.produce_answers import answers, leader_hints
from spark_kafka_sink.producer.sender.producer_identity import ProducerIdentity
from spark_kafka_sink.producer.sender.refusal_log import RefusalLog
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import codec_of

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transactions.transaction_sender import TransactionSender

log = logging.getLogger(__name__)

# From v13 on topics go by id; names do until every broker that we meet knows ids.
MAX_PRODUCE_VERSION = 12
MAX_POLL_MS = 60_000


class UnsentRecords(Protocol):
    """What the sender's thread needs to know of records that are not in the accumulator yet."""

    def drain_due(self, now_ms: int) -> int:
        """Put into batches what is due; in how many ms there will be more."""
        ...

    def has_rows(self) -> bool: ...

    def drop(self, error: KafkaSinkError) -> None:
        """Fail what is there now."""
        ...

    def fail(self, error: KafkaSinkError) -> None: ...


class Sender:
    """One thread that owns the client, the sequence numbers and every sealed batch of a producer.

    Other threads only call `wakeup`, `close` and `force_close`, and read `failure`, which is set once, before the thread's end.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: NetworkClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        records: UnsentRecords,
        metrics: SenderMetrics,
        idle_since_ms: Callable[[int], int | None],
        ended: Callable[[], None],
        transactions: TransactionSender | None = None,
    ) -> None:
        """ended: called at the thread's end, when everybody was told. transactions: of a transactional producer."""
        self._transactions = transactions
        self._producing = 0  # Produce requests without an answer
        self._config = config
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._pool = pool
        self._records = records
        self._metrics = metrics
        self._idle_since_ms = idle_since_ms
        self._when_ended = ended
        self._identity = ProducerIdentity(config, client)
        self._delivery = Delivery(config, accumulator, pool, self._why_unsent, metrics, transactions)
        if transactions is not None:
            accumulator.admits = transactions.admits
        self._refusals = RefusalLog()
        self._outages = OutageLog(accumulator, client, metadata, self._why_not_sent_to, transactions)
        self._codec = codec_of(config.compression_type)
        self._level = _level(config)
        self._ratios = CompressionRatios()
        self._closing = False
        self._force = False
        self.failure: KafkaSinkError | None = None
        self._thread = threading.Thread(target=self._run, name=f"kafka-producer-network-thread | {config.client_id}", daemon=True)

    # Any thread

    def start(self) -> None:
        self._thread.start()

    def wakeup(self) -> None:
        if not self.is_current_thread():  # which looks at everything before it waits again; to wake itself would be to spin
            self._client.wakeup()

    def close(self) -> None:
        """Send what is there, then end."""
        self._accumulator.closed = True
        self._closing = True
        self.wakeup()

    def force_close(self) -> None:
        """End now; whatever is not finished fails."""
        self._force = True
        self.close()

    def join(self, timeout_s: float | None) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def is_current_thread(self) -> bool:
        return threading.get_ident() == self._thread.ident

    # The sender's thread

    def _run(self) -> None:
        try:
            while not self._ended():
                self._run_once(monotonic_ms())
        except Exception as error:  # whatever it is, nobody may wait for an answer that will not come
            log.exception("the sender's thread failed")
            self.failure = KafkaSinkError(f"the sender's thread failed: {type(error).__name__}: {error}")
        finally:
            self._accumulator.closed = True
            with ExitStack() as ends:  # each of them, whatever the others say; the last one named is the first to run
                ends.callback(self._when_ended)
                ends.callback(self._fail_what_is_left)
                ends.callback(self._pool.close)
                ends.callback(self._metadata.close)
                ends.callback(self._count_network)
                ends.callback(self._client.close)

    def _fail_what_is_left(self) -> None:
        error = self.failure or UsageError("the producer was closed before these records were acked")
        try:
            if self._transactions is not None:
                self._transactions.fail(error)
            self._delivery.fail_all(error)
        finally:
            self._records.fail(error)

    def _ended(self) -> bool:
        if self._force or self.failure is not None:
            return True
        if not self._closing and self._until_idle_ms(monotonic_ms()) > 0:
            return False
        if self._records.has_rows() or self._accumulator.has_incomplete():  # in the order of _is_flushed
            return False
        return not self._closing or self._transactions is None or self._transactions.close(monotonic_ms())

    def _run_once(self, now_ms: int) -> None:
        self._delivery.expire(now_ms)
        identity = self._identity.current if self._transactions is None else None
        if identity is not None and self._delivery.resolve_gaps(identity):
            self._identity.renew()
        timeout = self._records.drain_due(now_ms)
        timeout = min(timeout, self._send_what_is_ready(now_ms), self._until_idle_ms(now_ms))
        if self._transactions is not None:
            self._hurry(self._transactions)
        if self._closing and self._ended():  # the last that it waits for may just have expired: no answer will end the poll
            return
        if self._transactions is not None:
            timeout = min(timeout, self._transactions.step(now_ms, self._is_flushed))
        timeout = min(timeout, self._outages.look(now_ms))
        responses = self._client.poll(max(0, min(timeout, MAX_POLL_MS)), now_ms)
        self._count_network()  # before anybody is told that records are acked
        for response in responses:
            self._answered(response, monotonic_ms())

    def _hurry(self, transactions: TransactionSender) -> None:
        """A transaction cannot end before nothing of it is waiting or on its way: what came after its end would be part
        of the next one, or of none. So what waits is sent at once, or fails."""
        refused = transactions.refuses()
        if refused is not None:
            self._records.drop(refused)
            self._delivery.fail_unsent(refused)
        elif transactions.is_committing:
            self._accumulator.flush(None)

    def _is_flushed(self) -> bool:
        """Whether no record waits or is on its way. Asked in the order of that way: between two looks another thread may move
        records on, and what was looked at in their new place before they were in the old one would be seen in neither."""
        return not (self._records.has_rows() or self._accumulator.has_incomplete() or self._producing)

    def _count_network(self) -> None:
        self._metrics.polled(self._client.take_counts(), monotonic_ms())

    def _why_unsent(self, queue: PartitionQueue) -> str:
        return self._metadata.why_no_leader(queue.topic) if queue.leader is None else self._why_not_sent_to(queue.leader)

    def _why_not_sent_to(self, node: int) -> str:
        if self._transactions is not None and self._transactions.identity is None:
            return self._transactions.why
        if self._transactions is None and self._identity.current is None:
            return f"no producer id yet; {self._identity.last_error}"
        return self._client.why_not_ready(node) or f"broker {node} took no request"

    def _until_idle_ms(self, now_ms: int) -> int:
        idle = self._idle_since_ms(now_ms)
        return 0 if idle is None else idle

    def _send_what_is_ready(self, now_ms: int) -> int:
        """One Produce request to each node that can take one. How long a poll may wait afterwards, in ms."""
        check = self._accumulator.ready(self._metadata.fetch(), now_ms)
        timeout = check.next_check_ms
        if check.unknown_leader_topics:
            for topic in check.unknown_leader_topics:
                self._metadata.add(topic, now_ms)
                if partitions := self._metadata.made_again_with(topic):
                    self._delivery.fail_beyond(topic, partitions)
            self._metadata.request_update()
        if self._transactions is not None:
            identity = self._transactions.identity
        else:
            identity = self._identity.current
            if identity is None and self._accumulator.has_incomplete():
                timeout = min(timeout, self._identity.ask(now_ms))
        if identity is None:
            return timeout
        for node in check.nodes:
            if self._client.ready(node, now_ms):
                if self._transactions is not None and self._transactions.refuses_leader(node):
                    return 0
                if self._send(node, identity, now_ms):
                    timeout = 0
            else:
                timeout = min(timeout, self._client.poll_delay_ms(node, now_ms))
        return timeout

    def _send(self, node: int, identity: ProducerIdAndEpoch, now_ms: int) -> bool:
        """One request; False when all that is ready is held back, by an append that writes to it or by what is in flight."""
        transactional_id = None if self._transactions is None else self._transactions.transactional_id
        room = self._config.max_request_size - request_overhead(self._config.client_id, transactional_id)
        batches = self._fitting(self._accumulator.drain(node, room, self._ratios.size), identity, room)
        if not batches:
            return False
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.queue.partition, records=batch.buffers())
            by_topic.setdefault(batch.queue.topic, []).append(data)
            self._mark_sent(batch, node, now_ms)
        self._metrics.sending(batches, now_ms)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in by_topic.items()],
        )
        for scope in {batch.scope for batch in batches}:
            if scope is not None:
                scope.request_sent()
        expects_answer = self._config.acks != 0
        max_version = MAX_PRODUCE_VERSION
        if self._transactions is not None:
            self._transactions.sending()
            self._producing += 1
            max_version = self._transactions.max_produce_version
        self._client.send(node, PRODUCE, request, now_ms, expects_answer=expects_answer, tag=batches, max_version=max_version)
        return True

    def _fitting(self, drained: Sequence[Batch], identity: ProducerIdAndEpoch, room: int) -> list[SealedBatch]:
        """Batches ready for the wire, of `room` bytes in all, or one that is larger.

        How large they are is known only once they are compressed. What does not fit is put back, and goes with the next request.
        """
        batches: list[SealedBatch] = []
        for place, batch in enumerate(drained):
            sealed = batch if isinstance(batch, SealedBatch) else self._compressed(batch)
            room -= sealed.size - HEADER_SIZE + batch_overhead(batch.queue.topic)
            if room < 0 and batches:
                self._accumulator.put_back(drained[place:])
                break
            if isinstance(batch, OpenBatch):
                self._number(batch, sealed, identity)
            batches.append(sealed)
        return batches

    def _compressed(self, batch: OpenBatch) -> SealedBatch:
        if batch.sealed is None:
            batch.sealed = SealedBatch(batch, self._codec, self._level)
            self._ratios.sealed(batch.sealed)
        return batch.sealed

    def _number(self, batch: OpenBatch, sealed: SealedBatch, identity: ProducerIdAndEpoch) -> None:
        """It goes, for the first time."""
        batch.sealed = None
        queue = batch.queue
        if identity == NO_PRODUCER:
            sealed.number(NO_PRODUCER, 0)
        else:
            if queue.sequences is None:
                queue.sequences = PartitionSequences(identity)
            queue.sequences.assign(sealed)
        self._accumulator.sealed(batch, sealed)
        sealed.free_raw(self._pool)

    def _mark_sent(self, batch: SealedBatch, node: int, now_ms: int) -> None:
        batch.attempts += 1
        batch.sent_to = node
        batch.first_sent_ms = batch.first_sent_ms or now_ms
        batch.on_wire = True
        batch.refused = False
        if self._config.max_in_flight == 1:
            self._accumulator.mute(batch.queue)

    # Answers

    def _answered(self, response: ClientResponse, now_ms: int) -> None:
        if response.error is None:
            self._outages.heard(response.node_id)
        if response.tag is self._identity:
            self.failure = self.failure or self._identity.answered(response, now_ms)
            return
        if self._transactions is not None:
            if not isinstance(response.tag, list):
                self._transactions.answered(response, now_ms)
                return
            self._producing -= 1
        batches: list[SealedBatch] = response.tag  # type: ignore[assignment]  # a tag is whatever send() was given
        if response.body is not None:
            self._metrics.answered(response.node_id, response.latency_ms, now_ms)
        refused: Counter[str] = Counter()
        for batch, answer, action in self._delivery.answered(answers(response, batches), now_ms):
            self._look_beyond(answer, action)
            if action is not Action.DELIVERED:
                refused[batch.last_error] += 1
        self._refusals.add(response.node_id, refused, now_ms)
        if isinstance(response.body, ProduceResponse) and (hints := leader_hints(response.body)):
            self._metadata.update_leaders(hints, response.body.node_endpoints)
        if self._config.max_in_flight == 1:
            for batch in batches:
                self._accumulator.unmute(batch.queue)

    def _look_beyond(self, answer: PartitionProduceResponse, action: Action) -> None:
        """What an error says of more than its batch: of the leaders, or of this whole producer."""
        if not answer.error_code:
            return
        facts = error_facts(answer.error_code)
        if facts.refreshes_metadata:
            self._metadata.request_update()
        if action is Action.FATAL and self._transactions is None:  # else the next transaction may go on
            text = f"{facts.name}: {answer.error_message or 'the broker gave no reason'}"
            self.failure = BrokerError(f"the producer cannot go on: {text}", error_code=answer.error_code, error=facts.name)


def _level(config: ProducerConfig) -> int:
    levels = {"gzip": config.compression_gzip_level, "lz4": config.compression_lz4_level, "zstd": config.compression_zstd_level}
    return levels.get(config.compression_type, 0)
