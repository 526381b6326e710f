"""Builds Produce requests and interprets their responses, including lost connections."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ClusterChangedError, KafkaSinkError, UnsupportedVersionError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch, RecordAccumulator
from spark_kafka_sink.producer.accumulator.request_size import CompressionRatios, RequestLimits, batch_overhead, request_overhead
from spark_kafka_sink.producer.accumulator.sequences import ProducerIdAndEpoch
from spark_kafka_sink.producer.base.produce_reactions import Action
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.sender.batch_responses import BatchAnswer, Delivery
from spark_kafka_sink.producer.sender.outage_log import OutageLog, ThrottleLog
from spark_kafka_sink.protocol.apis.produce import PRODUCE, LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import BatchParts, PreparedRequest, ProduceEncoder
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import codec_of

logger = logging.getLogger(__name__)

REFUSALS_EVERY_MS = 1000


class ProduceRequests:
    """Takes ready batches, one request per broker, and passes on each response. Used only by the sender thread."""

    def __init__(
        self,
        config: ProducerConfig,
        client: NetworkClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        identity: Identity,
        metrics: SenderMetrics,
    ) -> None:
        self._config = config
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._identity = identity
        self._metrics = metrics
        self._throttles = ThrottleLog(config.client_id, self._broker_name)
        self.delivery = Delivery(config, accumulator, identity, metrics, self._unsent_reason, self._throttles.reason)
        self.outages = OutageLog(client, metadata, accumulator, identity, self._blocked_reason)
        self._refusals = RefusalLog()
        self._encoder = ProduceEncoder(config.client_id, config.acks, config.request_timeout_ms)
        self._codec = codec_of(config.compression_type)
        self._level = config.compression_level
        self._ratios = CompressionRatios()
        self._limits = RequestLimits(config)
        self._cluster_id: str | None = None
        self.in_flight = 0

    def send_ready(self, now_ms: int) -> int:
        """Sends one request to each node that can accept one. Returns how long a poll may wait afterwards, in ms."""
        cluster_id = self._metadata.fetch().cluster_id
        if cluster_id != self._cluster_id:
            if (change := self._metadata.cluster_change) is not None:
                self._identity.cluster_changed(change)
            self._cluster_id = cluster_id
        check = self._accumulator.ready(self._metadata.fetch(), now_ms)
        timeout = check.next_check_ms
        if check.unknown_leader_topics:
            for topic in check.unknown_leader_topics:
                self._metadata.add(topic, now_ms)
                if partitions := self._metadata.made_again_with(topic):
                    self.delivery.fail_beyond(topic, partitions)
                if self._metadata.fetch().topic_error(topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.delivery.fail_unauthorized(topic)
            self._metadata.request_update()
        producer = self._identity.current
        if producer is None:
            return timeout
        for node in check.nodes:
            if self._client.ready(node, now_ms):
                if not self._identity.may_send_to(node):
                    return 0
                # The poll ends when the request is sent, so that the next one follows at once. Until then it writes.
                self._send(node, producer, now_ms)
            else:
                timeout = min(timeout, self._client.poll_delay_ms(node, now_ms))
        return timeout

    def _unsent_reason(self, queue: PartitionQueue) -> str:
        return self._metadata.why_no_leader(queue.topic) if queue.leader is None else self._blocked_reason(queue.leader)

    def _blocked_reason(self, node: int) -> str:
        blocked = self._identity.blocked_reason if self._identity.current is None else ""
        failure = self._client.why_not_ready(node) or ""
        if failure in blocked:
            return blocked or f"broker {node} accepted no request"
        return "; ".join(filter(None, [blocked, failure]))

    def _send(self, node: int, producer: ProducerIdAndEpoch, now_ms: int) -> None:
        """Sends one request, unless everything that is ready is held back by an append or by requests in flight."""
        config, identity = self._config, self._identity
        room = self._limits.of(node) - request_overhead(config.client_id, identity.transactional_id)
        drained = self._accumulator.drain(node, room, self._ratios.size, identity.may_drain)
        if (change := self._metadata.cluster_change) is not None:
            drained = [batch for batch in drained if not self._fails_with(change, batch)]
        batches = self._fitting(drained, producer, room)
        if not batches:
            return
        by_topic: dict[str, list[BatchParts]] = {}
        for batch in batches:
            queue = batch.queue
            parts: BatchParts = (queue.partition, batch.size, batch.header, batch.payload)
            if (of_topic := by_topic.get(queue.topic)) is None:
                by_topic[queue.topic] = [parts]
            else:
                of_topic.append(parts)
            batch.attempts += 1
            batch.sent_to = node
            batch.first_sent_ms = batch.first_sent_ms or now_ms
            batch.on_wire = True
            batch.known_not_stored = False
            if config.max_in_flight == 1:
                self._accumulator.mute(queue)
        self._metrics.sending(batches, now_ms)
        request = PreparedRequest(partial(self._encoder.encode, identity.transactional_id, by_topic))
        for tally in {batch.tally for batch in batches}:
            if tally is not None:
                tally.request_sent(self._cluster_id)
        identity.sending()
        self.in_flight += 1
        version = identity.max_produce_version
        self._client.send(node, PRODUCE, request, now_ms, expects_answer=config.acks != 0, tag=batches, max_version=version)

    def _fails_with(self, change: ClusterChangedError, batch: Batch) -> bool:
        """Fails a drained batch that may be in the cluster of before, or is of a scope whose other records are there."""
        queue = batch.queue
        if queue.sequences is not None and queue.sequences.of_other_cluster:
            records = counted(batch.record_count, "record was", "records were")
            text = f"topic {queue.topic} partition {queue.partition}: {records} sent and may have been stored; {change.message}"
            facts = change.facts | {"topic": queue.topic, "partition": queue.partition}
            self.delivery.fail(batch, ClusterChangedError(text, **facts))
            return True
        if batch.tally is None or batch.tally.may_send_to(self._cluster_id):
            return False
        self.delivery.fail(batch, change)
        return True

    def _fitting(self, drained: Sequence[Batch], producer: ProducerIdAndEpoch, room: int) -> list[SealedBatch]:
        """Returns the batches to send: `room` bytes in total, known only after compression, or a single larger batch. Batches
        that do not fit are put back for the next request.
        """
        batches: list[SealedBatch] = []
        first_sent: list[SealedBatch] = []
        for place, batch in enumerate(drained):
            sealed = self._compressed(batch) if isinstance(batch, OpenBatch) else batch
            room -= sealed.size - HEADER_SIZE + batch_overhead(batch.queue.topic)
            if room < 0 and batches:
                self._accumulator.put_back(drained[place:])
                break
            if batch is not sealed:
                first_sent.append(sealed)
                self._identity.stamp(sealed, producer)
                sealed.free_raw(self._accumulator.pool)
            batches.append(sealed)
        self._accumulator.sealed(first_sent)
        return batches

    def _compressed(self, batch: OpenBatch) -> SealedBatch:
        sealed = batch.sealed
        if sealed is None:
            sealed = batch.sealed = SealedBatch(batch, self._codec, self._level)
            self._ratios.sealed(sealed)
        return sealed

    def polled(self, responses: Iterable[ClientResponse]) -> None:
        """Takes the events of a poll, before anyone gets the outcome of a record."""
        self._count_network()
        if self._client.rejections:
            self._fail_rejected()
        for response in responses:
            if response.error is None:
                self.outages.heard(response.node_id)

    def _fail_rejected(self) -> None:
        """Fails batches for a broker that rejected the login, and those that need it for a leader or a producer id. Nothing is
        retried until records are sent again.
        """
        for node, (error, ends_metadata) in self._client.take_rejections().items():
            self._identity.rejected(node, error)
            needs_any = self._identity.current is None

            def goes_there(
                queue: PartitionQueue, node: int = node, any_leader: bool = needs_any, none: bool = ends_metadata
            ) -> bool:
                return any_leader or queue.leader == node or (none and queue.leader is None)

            self.delivery.fail_rejected(goes_there, error)

    def _count_network(self) -> None:
        self._metrics.polled(self._client.take_counts(), monotonic_ms())

    def close(self) -> None:
        """Ends the connections, and all waits for metadata and memory, when the sender thread ends."""
        with ExitStack() as ends:  # runs each of them, whatever the others raise; the last one registered runs first
            ends.callback(self._accumulator.pool.close)
            ends.callback(self._metadata.close)
            ends.callback(self._count_network)
            ends.callback(self._client.close)

    def answered(self, response: ClientResponse, now_ms: int) -> KafkaSinkError | None:
        """Handles a response. Returns why the producer cannot continue, if it says so."""
        self.in_flight -= 1
        batches: list[SealedBatch] = response.tag  # type: ignore[assignment]  # a tag is whatever send() was given
        size = sum([batch.size for batch in batches])
        if response.error is not None:
            self._limits.lost(response.node_id, size)
        if response.body is not None:
            self._limits.answered(response.node_id, size, response.latency_ms)
            self._metrics.answered(response.node_id, response.latency_ms, now_ms)
            if response.body.throttle_time_ms > 0:  # type: ignore[attr-defined]  # it is a ProduceResponse
                self._throttled(response.node_id, response.body, batches, now_ms)
        not_delivered = self.delivery.answered(answers(response, batches), now_ms)
        failure = self._not_delivered(response, not_delivered, now_ms) if not_delivered else None
        if self._config.max_in_flight == 1:
            for batch in batches:
                self._accumulator.unmute(batch.queue)
        return failure

    def _throttled(self, node: int, body: Message, batches: Sequence[SealedBatch], now_ms: int) -> None:
        """Counts a pause that a broker asks for, for each scope that has records in the request."""
        assert isinstance(body, ProduceResponse)
        added_ms = self._throttles.answered(node, body.throttle_time_ms, now_ms)
        for tally in {batch.tally for batch in batches}:
            if tally is not None:
                tally.throttled(added_ms)

    def _broker_name(self, node: int) -> str:
        return str(self._metadata.fetch().nodes.get(node) or f"broker {node}")

    def _not_delivered(
        self, response: ClientResponse, refusals: Sequence[tuple[SealedBatch, PartitionProduceResponse, Action]], now_ms: int
    ) -> KafkaSinkError | None:
        """Handles what refusals mean for more than their batches. Returns why the producer cannot continue, if one says so."""
        refused: Counter[str] = Counter()
        failure: KafkaSinkError | None = None
        for batch, answer, action in refusals:
            if answer.error_code and error_facts(answer.error_code).refreshes_metadata:
                self._metadata.request_update()
            if action is Action.FATAL and self._identity.ends_with_fatal_errors:
                failure = self.delivery.producer_error(answer)
            if action is not Action.DELIVERED:
                refused[batch.last_error] += 1
        self._refusals.add(response.node_id, refused, now_ms)
        if isinstance(response.body, ProduceResponse) and (hints := leader_hints(response.body)):
            self._metadata.update_leaders(hints, response.body.node_endpoints)
        return failure


def answers(response: ClientResponse, batches: Sequence[SealedBatch]) -> Iterator[BatchAnswer]:
    """Returns each batch of a request with its own response.

    A lost connection counts as NETWORK_EXCEPTION (as in Java's Sender.handleProduceResponse), and so does a partition that is
    missing from the response. Partitions that were not requested are ignored.
    """
    if isinstance(response.body, ProduceResponse):
        yield from _answered(response.body, batches)
    elif response.error is None:  # acks=0: the broker sends no response
        yield from _same(batches, ErrorCode.NONE, None)
    elif isinstance(response.error, UnsupportedVersionError):
        yield from _same(batches, ErrorCode.UNSUPPORTED_VERSION, response.error.message)
    else:
        yield from _same(batches, ErrorCode.NETWORK_EXCEPTION, str(response.error))


def leader_hints(body: ProduceResponse) -> Mapping[tuple[str, int], LeaderIdAndEpoch]:
    """Returns the new leaders that a rejection names, which saves a metadata request (KIP-951)."""
    return {
        (topic.name, partition.index): partition.current_leader
        for topic in body.responses
        for partition in topic.partition_responses
        if partition.error_code and partition.current_leader is not None and partition.current_leader.leader_id >= 0
    }


def _answered(body: ProduceResponse, batches: Sequence[SealedBatch]) -> Iterator[BatchAnswer]:
    said: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in reversed(body.responses):  # the first one counts if a partition is in it twice
        name = topic.name
        for partition in reversed(topic.partition_responses):
            said[name, partition.index] = partition
    for batch in batches:
        queue = batch.queue
        answer = said.get((queue.topic, queue.partition))
        yield (
            batch,
            answer or _answer(batch, ErrorCode.NETWORK_EXCEPTION, "the broker's response does not include this partition"),
        )


def _same(batches: Sequence[SealedBatch], code: ErrorCode, message: str | None) -> Iterator[BatchAnswer]:
    return ((batch, _answer(batch, code, message)) for batch in batches)


def _answer(batch: SealedBatch, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=batch.queue.partition, error_code=code, base_offset=-1, error_message=message)


@dataclass(slots=True)
class RefusalLog:
    """Warns about batches that brokers reject: at once, then once a second for each broker and error. The next line counts what
    happened in between; the delivery reports count everything.
    """

    _counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    _logged_ms: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, node: int, errors: Counter[str], now_ms: int) -> None:
        """Counts the rejected batches of one response by error, which is a name and possibly the broker's message."""
        for error, count in errors.items():
            key = (node, error.partition(":")[0])
            self._counts[key] += count
            if now_ms - self._logged_ms.get(key, -REFUSALS_EVERY_MS) >= REFUSALS_EVERY_MS:
                self._logged_ms[key] = now_ms
                logger.warning("broker %d rejected %s: %s", node, counted(self._counts.pop(key), "batch", "batches"), error)
