"""The producer's identity at the brokers and its effect on batches: none, or idempotent (transactional: transactions/)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.errors import AuthenticationError, BrokerError, KafkaSinkError, UnsupportedVersionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.producer.base.produce_reactions import WITHOUT_IDEMPOTENCE, Action, action_for
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.security.acls import rights_of

logger = logging.getLogger(__name__)

# From v13 on topics are identified by id. Names are used until all supported brokers know ids.
MAX_PRODUCE_VERSION = 12


class Identity:
    """No identity: with enable.idempotence=false batches have no numbers, and a retry may store them twice.

    IdempotentIdentity and TransactionalIdentity override what differs. Only the sender thread calls, except for `check_may_send`,
    `append_failed` and `missed`, which any thread may call.
    """

    ends_with_fatal_errors = True
    """Whether a fatal error from a broker ends the producer. In a transactional producer it ends the transaction only."""

    is_transactional = False
    """Whether records belong to transactions. The sender thread then waits for the end of every append."""

    # What may be sent

    @property
    def current(self) -> ProducerIdAndEpoch | None:
        """The producer of batches; None if none may be sent now."""
        return NO_PRODUCER

    @property
    def blocked_reason(self) -> str:
        """Why no batches are sent while `current` is None, for error messages."""
        return ""

    @property
    def transactional_id(self) -> str | None:
        """The transactional id of batches; None without transactions."""
        return None

    @property
    def max_produce_version(self) -> int:
        """The last version of Produce that may carry the batches."""
        return MAX_PRODUCE_VERSION

    def may_drain(self, queue: PartitionQueue) -> bool:
        """Returns whether a partition's batches may be sent; if not, marks it later. Called with the accumulator's lock."""
        return True

    def may_send_to(self, node: int) -> bool:
        """Returns whether a connected broker may receive batches."""
        return True

    def cluster_changed(self, error: KafkaSinkError) -> None:
        """Called when brokers belong to another cluster than before."""

    def sending(self) -> None:
        """Called when a request with batches is sent."""

    def stamp(self, batch: SealedBatch, producer: ProducerIdAndEpoch) -> None:
        """Numbers a batch at its first send. `producer`: the value of `current` when its request was begun."""
        batch.number(NO_PRODUCER, 0)

    # Outcome of batches

    def decide(self, action: Action, batch: SealedBatch, answer: PartitionProduceResponse) -> Action:
        """Returns the action for a response, given the action from the table of codes."""
        return action

    def advice(self, code: int) -> str:
        """Returns what the error code of a response means for these batches, if that is more than its name says."""
        return ""

    def acked(self, batches: Iterable[SealedBatch]) -> None:
        """Called when batches are stored."""

    def will_retry(self, batch: SealedBatch, action: Action) -> None:
        """Called when a batch will be sent again."""

    def replaced(self, batch: SealedBatch, parts: Sequence[SealedBatch]) -> None:
        """Called when other batches replace one that was not stored."""
        for part in parts:
            part.number(NO_PRODUCER, 0)

    def may_leave_out(self, batch: SealedBatch) -> bool:
        """Returns whether records of a batch can be left out, which the broker has just rejected, and all others delivered."""
        return True

    def left_out(self, batch: SealedBatch) -> None:
        """Called when all records of a batch were rejected and are left out. If only some were, `replaced` is called."""
        self.dropped(batch)

    def dropped(self, batch: SealedBatch) -> None:
        """Called when a sent batch failed for good."""

    def given_up(self, batch: SealedBatch) -> None:
        """Called when a numbered batch will not be sent any more."""
        self.dropped(batch)

    def settled(self, queue: PartitionQueue) -> None:
        """Called when a request with batches of the partition is finished."""

    def failed(self, error: KafkaSinkError) -> None:
        """Called when records failed, before their scope or futures are notified."""

    def fatal(self, error: BrokerError) -> None:
        """Called when a leader reports that the producer cannot continue."""

    def rejected(self, node: int, error: AuthenticationError) -> None:
        """Called when a broker rejected the login."""

    # Own requests

    def resolve_gaps(self) -> None:
        """Begins a new epoch where the numbering broke, before batches are drained."""

    def unsent_error(self) -> KafkaSinkError | None:
        """Returns why unsent records will never be sent; None if they will."""
        return None

    @property
    def is_committing(self) -> bool:
        """Whether all waiting records must be sent at once."""
        return False

    @property
    def waits_for(self) -> tuple[str, int] | None:
        """The request that blocks all others, by transactional id and number; None if there is none."""
        return None

    def step(self, now_ms: int, is_flushed: Callable[[], bool]) -> int:
        """Sends the next request, if any. Returns the ms until another is due. `is_flushed`: nothing waits or is in flight."""
        return FOREVER_MS

    def answered(self, response: ClientResponse, now_ms: int) -> KafkaSinkError | None:
        """Handles the response to an own request. Returns why the producer cannot continue, if it cannot."""
        return None

    # A program's calls, from any thread

    def check_may_send(self, *, in_own_scope: bool = False) -> None:
        """Raises UsageError if records would be outside a transaction."""

    def append_failed(self, error: BaseException) -> None:
        """Called when an append of columns raised this error."""

    def missed(self, error: KafkaSinkError) -> None:
        """Called when a record got into no batch, or was dropped from one before it was sent."""

    # End

    def close(self, now_ms: int) -> bool:
        """Called when the producer is closing. Returns whether nothing is left to do."""
        return True

    def fail(self, error: KafkaSinkError) -> None:
        """Called when the sender thread ends."""


class NumberedIdentity(Identity):
    """Numbers each partition's batches (PartitionSequences)."""

    def stamp(self, batch: SealedBatch, producer: ProducerIdAndEpoch) -> None:
        queue = batch.queue
        if queue.sequences is None:
            queue.sequences = PartitionSequences(producer)
        queue.sequences.assign(batch)

    def acked(self, batches: Iterable[SealedBatch]) -> None:
        for batch in batches:
            if (sequences := batch.queue.sequences) is not None:
                sequences.acked(batch)

    def will_retry(self, batch: SealedBatch, action: Action) -> None:
        sequences = batch.queue.sequences
        if sequences is None:
            return
        match action:
            case Action.RETRY:
                sequences.unsure(batch)
            case Action.TOPIC_UNKNOWN:
                sequences.unsure(batch)
                sequences.topic_unknown()
            case Action.OUT_OF_ORDER:
                sequences.out_of_order(batch)
            case Action.PRODUCER_LOST:
                sequences.lost(batch)

    def replaced(self, batch: SealedBatch, parts: Sequence[SealedBatch]) -> None:
        if batch.queue.sequences is None:
            super().replaced(batch, parts)
        else:
            batch.queue.sequences.replaced(batch, parts)

    def dropped(self, batch: SealedBatch) -> None:
        if batch.queue.sequences is not None:
            batch.queue.sequences.dropped(batch)


WARN_EVERY_MS = 5000  # a broker that has just started may reject requests for a moment: COORDINATOR_LOAD_IN_PROGRESS


class IdempotentIdentity(NumberedIdentity):
    """enable.idempotence without transactions: a producer id from any broker, and an epoch per partition.

    Transient errors are retried after retry.backoff.ms while records need the id; those expire with delivery.timeout.ms. Lasting
    errors are logged. A broker without the API ends the producer at once.
    """

    def __init__(self, config: ProducerConfig, client: NetworkClient, accumulator: RecordAccumulator) -> None:
        self._client = client
        self._accumulator = accumulator
        self._rights = partial(rights_of, config.bootstrap_servers, config.security)
        self._back_off_ms = config.retry_backoff_ms
        self._current: ProducerIdAndEpoch | None = None
        self._gaps: set[PartitionQueue] = set()
        self._asked = False
        self._changes = 0  # of the cluster; the tag of requests, because a response may arrive after a change
        self._not_before_ms = 0
        self._quiet_until_ms: int | None = None  # None: the last response was not a rejection
        self._last_error = "no broker could be asked"

    @property
    def current(self) -> ProducerIdAndEpoch | None:
        return self._current

    @property
    def blocked_reason(self) -> str:
        return f"there is no producer id yet; {self._last_error}"

    def cluster_changed(self, error: KafkaSinkError) -> None:
        """Requests a producer id of the new cluster, which may have given this one to another producer.

        That producer's batches with the same numbers would make these count as stored.
        """
        self._current, self._asked = None, False
        self._changes += 1
        self._gaps = self._accumulator.numbered_queues()
        for queue in self._gaps:
            assert queue.sequences is not None
            queue.sequences.cluster_changed()

    def settled(self, queue: PartitionQueue) -> None:
        if queue.sequences is not None and queue.sequences.gap:
            self._gaps.add(queue)

    def resolve_gaps(self) -> None:
        """Starts new epochs where nothing is in flight any more, or requests another producer id if the epochs are used up."""
        producer = self._current
        if producer is None:
            return
        for queue in list(self._gaps):
            assert queue.sequences is not None
            if queue.sequences.resolve(producer):
                self._gaps.discard(queue)
                self._accumulator.answered(queue)
            elif queue.sequences.needs_producer_id(producer):
                self._current = None

    def step(self, now_ms: int, is_flushed: Callable[[], bool]) -> int:
        """Requests a producer id if there is none and records need it."""
        if self._current is not None or self._asked or not self._accumulator.has_incomplete():
            return FOREVER_MS
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        node = self._client.least_loaded_node(now_ms)
        if node is None:
            return self._back_off_ms
        if not self._client.ready(node, now_ms):
            return self._client.poll_delay_ms(node, now_ms)
        self._client.send(node, INIT_PRODUCER_ID, InitProducerIdRequest(), now_ms, tag=self._changes)
        self._asked = True
        return FOREVER_MS

    def answered(self, response: ClientResponse, now_ms: int) -> KafkaSinkError | None:
        if response.tag != self._changes:
            return None
        self._asked = False
        self._not_before_ms = now_ms + self._back_off_ms
        if isinstance(response.error, UnsupportedVersionError):
            # Time does not cure this. Java's producer ends too (TxnRequestHandler.onComplete).
            text = (
                f"{response.error.message}: it does not provide producer ids, which idempotence requires; {WITHOUT_IDEMPOTENCE}"
            )
            return UnsupportedVersionError(text, **response.error.facts)
        if response.error is not None:
            self._ask_again(response, str(response.error), now_ms)
            return None
        body = response.body
        assert isinstance(body, InitProducerIdResponse)
        if body.error_code == 0:
            self._current = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
            self._quiet_until_ms = None
            return None
        name = error_facts(body.error_code).name
        if action_for(body.error_code, idempotent=True) in (Action.RETRY, Action.LATER):
            self._ask_again(response, name, now_ms)
            return None
        is_denied = body.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        since_2_8 = "; from Kafka 2.8 on, Write permission on any topic is enough; or" if is_denied else ";"
        more = f"{since_2_8} {WITHOUT_IDEMPOTENCE}"
        return self._rights().error(
            f"the broker rejected InitProducerId: {name}", ApiKey.INIT_PRODUCER_ID, body.error_code, more=more
        )

    def _ask_again(self, response: ClientResponse, error: str, now_ms: int) -> None:
        self._last_error = f"InitProducerId at broker {response.node_id}: {error}"
        lasts = self._quiet_until_ms is not None and now_ms >= self._quiet_until_ms
        if lasts or self._quiet_until_ms is None:
            self._quiet_until_ms = now_ms + WARN_EVERY_MS
        logger.log(logging.WARNING if lasts else logging.INFO, "%s", self._last_error)
