"""A producer's identity at the brokers and its effect on batches: the interface that all senders use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.errors import AuthenticationError, BrokerError, KafkaSinkError
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.producer.base.produce_reactions import Action
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse

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
        """Returns whether a partition's batches may be sent. Called with the accumulator's lock; after False the queue is marked
        later.
        """
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
        """Sends the next request, if any. Returns the time until another is due, in ms.

        `is_flushed` returns whether no record waits or is in flight.
        """
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
