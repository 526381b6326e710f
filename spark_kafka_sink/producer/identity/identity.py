"""Who the brokers think a producer is, and what follows from it for its batches: one interface, asked by all who send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.errors import AuthenticationError, BrokerError, KafkaSinkError
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.producer.error_policy import Action
from spark_kafka_sink.producer.lifecycle import FOREVER_MS
from spark_kafka_sink.protocol.produce import PartitionProduceResponse

# From v13 on topics go by id; names do until every broker that we meet knows ids.
MAX_PRODUCE_VERSION = 12


class Identity:
    """As it stands here nobody's: with enable.idempotence=false batches carry no numbers, and a retry may store them twice.
    IdempotentIdentity and TransactionalIdentity say what is different for them.

    Threads: the sender's, but for `check_may_send`, `append_failed` and `missed`, which any thread may call.
    """

    ends_with_fatal_errors = True
    """Whether an error that the broker calls final ends the producer; a transaction ends with it, and another may follow."""

    awaits_appends = False
    """Whether the sender's thread waits for the end of every append."""

    # What may be sent

    @property
    def current(self) -> ProducerIdAndEpoch | None:
        """Who batches are from; None: none may be sent now."""
        return NO_PRODUCER

    @property
    def blocked_reason(self) -> str:
        """The reason why no batches are sent while there is no `current`, for error texts."""
        return ""

    @property
    def transactional_id(self) -> str | None:
        """The transaction that batches belong to; None without one."""
        return None

    @property
    def max_produce_version(self) -> int:
        """The last version of Produce that may carry them."""
        return MAX_PRODUCE_VERSION

    def may_drain(self, queue: PartitionQueue) -> bool:
        """Whether a partition's batches may be sent. Asked with the accumulator's lock; who says no marks the queue later."""
        return True

    def may_send_to(self, node: int) -> bool:
        """Whether a broker that is ready may get batches."""
        return True

    def sending(self) -> None:
        """A request with batches goes out."""

    def stamp(self, batch: SealedBatch, producer: ProducerIdAndEpoch) -> None:
        """Gives a batch its numbers, at its first send. producer: `current`, as it was when its request was begun."""
        batch.number(NO_PRODUCER, 0)

    # What became of batches

    def decide(self, action: Action, batch: SealedBatch, answer: PartitionProduceResponse) -> Action:
        """Returns what to do about an answer for which the table of codes has this action."""
        return action

    def acked(self, batches: Iterable[SealedBatch]) -> None:
        """Batches are stored."""

    def will_retry(self, batch: SealedBatch, action: Action) -> None:
        """Is told that a batch will be sent again."""

    def replaced(self, batch: SealedBatch, parts: Sequence[SealedBatch]) -> None:
        """Others have the records of a batch that was not stored."""
        for part in parts:
            part.number(NO_PRODUCER, 0)

    def dropped(self, batch: SealedBatch) -> None:
        """A batch that was sent failed for good."""

    def given_up(self, batch: SealedBatch) -> None:
        """A batch that has its numbers is not sent any more."""
        self.dropped(batch)

    def settled(self, queue: PartitionQueue) -> None:
        """Something in flight for the partition is over."""

    def failed(self, error: KafkaSinkError) -> None:
        """Records failed, whose scope or futures are told next."""

    def fatal(self, error: BrokerError) -> None:
        """A leader says of the producer, not of a batch, that it cannot go on."""

    def rejected(self, node: int, error: AuthenticationError) -> None:
        """A broker rejected the login."""

    # Requests of its own

    def resolve_gaps(self) -> None:
        """Begins another epoch where the numbering broke, before batches are drained."""

    def unsent_error(self) -> KafkaSinkError | None:
        """Why what was not sent never will be; None if it will."""
        return None

    @property
    def is_committing(self) -> bool:
        """Whether all that waits has to be sent at once."""
        return False

    @property
    def waits_for(self) -> tuple[str, int] | None:
        """The request that nothing goes on without, by transactional id and number; None without one."""
        return None

    def step(self, now_ms: int, is_flushed: Callable[[], bool]) -> int:
        """Sends what is to be asked now. Returns in how many ms there will be more, if nothing happens before.

        is_flushed: tells whether no record waits or is on its way.
        """
        return FOREVER_MS

    def answered(self, response: ClientResponse, now_ms: int) -> KafkaSinkError | None:
        """Takes the answer to a request of its own. Returns why the producer cannot go on, if that is so."""
        return None

    # A program's calls, from any thread

    def check_may_send(self, *, in_own_scope: bool = False) -> None:
        """Raises UsageError where records would be outside of a transaction."""

    def append_failed(self, error: BaseException) -> None:
        """An append of columns raised this."""

    def missed(self, error: KafkaSinkError) -> None:
        """A record got into no batch, or was dropped from one before that was sent."""

    # The end

    def close(self, now_ms: int) -> bool:
        """The producer is closing. Returns whether nothing is left to be done."""
        return True

    def fail(self, error: KafkaSinkError) -> None:
        """The sender's thread is at its end."""


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
            case Action.TOPIC_UNKNOWN:
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
