"""Completes batches when their response arrives or their time is up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthenticationError, BrokerError, DeliveryTimeoutError, KafkaSinkError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch, RecordAccumulator
from spark_kafka_sink.producer.accumulator.rejected_batches import (
    NO_REASON,
    RejectedRecords,
    advice,
    keeps_rejected,
    others,
    rebuild,
    record_error,
    rejected,
    rejected_records,
    split,
    without_names,
)
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.produce_reactions import SOON_MS, WITHOUT_IDEMPOTENCE, Action, action_for
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.producer_metadata import CREATE_IT
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport, latency_bucket
from spark_kafka_sink.security.acls import rights_of

logger = logging.getLogger(__name__)

BatchAnswer = tuple[SealedBatch, PartitionProduceResponse]

# A number, because members of an enumeration are slower to compare.
_STORED = int(ErrorCode.NONE)
_AGAIN = (Action.RETRY, Action.LATER, Action.TOPIC_UNKNOWN, Action.OUT_OF_ORDER, Action.PRODUCER_LOST)


class Delivery:
    """Acknowledges, fails, expires or requeues batches. Used only by the sender thread."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        identity: Identity,
        metrics: SenderMetrics,
        unsent_reason: Callable[[PartitionQueue], str],
        throttled: Callable[[int, int], str] = lambda _node, _now_ms: "",
    ) -> None:
        """`unsent_reason` returns what keeps a partition's batches from being sent, `throttled` which broker's quota."""
        self._config = config
        self._accumulator = accumulator
        self._pool = accumulator.pool
        self._identity = identity
        self._metrics = metrics
        self._unsent_reason = unsent_reason
        self._throttled = throttled
        self._rights = partial(rights_of, config.bootstrap_servers, config.security)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def answered(self, answers: Iterable[BatchAnswer], now_ms: int) -> list[tuple[SealedBatch, PartitionProduceResponse, Action]]:
        """Applies the action of each response's error code. Returns failures that concern more than their batch."""
        acks: list[tuple[SealedBatch, PartitionProduceResponse]] = []
        not_delivered = []
        for batch, answer in answers:
            batch.on_wire = False
            if answer.error_code == _STORED and not batch.done:
                acks.append((batch, answer))
                continue
            action = self._action(batch, answer)
            if action is Action.DELIVERED and not batch.done:
                acks.append((batch, answer))
            else:
                not_delivered.append((batch, answer, action))
        self._acked(acks, now_ms)  # first: a failure wakes the task, and its error says how much was acknowledged
        for batch, answer, action in not_delivered:
            if batch.done:  # it expired in flight; only the sequence numbers still matter
                self._settle_expired(batch, action)
            else:
                self._not_acked(batch, answer, action, now_ms)
            self._settled(batch.queue)
        return not_delivered

    def _action(self, batch: SealedBatch, answer: PartitionProduceResponse) -> Action:
        action = action_for(answer.error_code, idempotent=self._config.enable_idempotence)
        action = self._identity.decide(action, batch, answer)
        if action is Action.PRODUCER_LOST and answer.log_start_offset < 0:
            return Action.RETRY  # the partition has just moved: retry until the broker knows (TransactionManager.canRetry)
        if action is Action.SPLIT and batch.record_count == 1:
            return Action.REJECTED
        if action is Action.REJECTED and not rejected(batch, answer):
            return without_names(batch)
        if answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE and keeps_rejected(batch):
            return without_names(batch)
        return action

    def expire(self, now_ms: int) -> None:
        """Fails batches older than delivery.timeout.ms, sent or not."""
        if now_ms < self._accumulator.expires_ms:
            return
        for batch in self._accumulator.expired(now_ms):
            self.fail(batch, self._timeout_error(batch, now_ms))

    def fail_beyond(self, topic: str, partitions: int) -> None:
        """Fails batches of partitions that no longer exist, because the topic was recreated with `partitions` partitions."""
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for batch in self._accumulator.beyond(topic, partitions):
            partition, sent = batch.queue.partition, isinstance(batch, SealedBatch) and batch.attempts > 0
            text = (
                f"topic {topic} partition {partition}: {counted(batch.record_count, 'record')} failed, because the topic was"
                f" deleted and recreated with {counted(partitions, 'partition')}; send them again, or add partitions to the topic"
                f" first{'. They may have been stored in the deleted topic' if sent else ''}"
            )
            self.fail(batch, BrokerError(text, topic=topic, partition=partition, error_code=int(code), error=code.name))

    def fail_unauthorized(self, topic: str) -> None:
        """Fails waiting batches of a topic that may no longer be described, so their leader is unknown. Java waits until they
        expire.
        """
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for batch in self._accumulator.beyond(topic, 0):
            partition = batch.queue.partition
            text = (
                f"topic {topic} partition {partition}: {counted(batch.record_count, 'record')} failed, because the leader"
                f" is unknown and the brokers do not name it: {code.name}"
            )
            if isinstance(batch, SealedBatch) and batch.attempts > 0:
                text += f"; they were sent {counted(batch.attempts, 'time')} and may have been stored"
            self.fail(batch, self._rights().error(text, ApiKey.METADATA, int(code), topic, topic=topic, partition=partition))

    def fail_rejected(self, goes_there: Callable[[PartitionQueue], bool], error: AuthenticationError) -> None:
        """Fails unsent batches whose broker rejected the login.

        A batch that was sent before may have been stored, and is retried as after a lost connection.
        """
        for batch in self._accumulator.unsent_for(goes_there):
            queue = batch.queue
            records = counted(batch.record_count, "record was", "records were")
            text = f"topic {queue.topic} partition {queue.partition}: {records} not sent: {error.message}"
            facts = error.facts | {"topic": queue.topic, "partition": queue.partition}
            self.fail(batch, AuthenticationError(text, **facts))

    def fail(self, batch: Batch, error: KafkaSinkError) -> None:
        """Fails a batch that was taken out of its queue, sent or not."""
        self._accumulator.remove(batch)
        if isinstance(batch, OpenBatch):
            self._report_failure(batch, error)
            batch.memory.give_back(self._pool)
        elif batch.on_wire:
            self._report_failure(batch, error)
            batch.done = True
        else:
            self._drop(batch, error)
        self._settled(batch.queue)

    def fail_unsent(self, error: KafkaSinkError) -> None:
        """Fails everything that is not in flight, because its transaction is or must be aborted."""
        for batch in self._accumulator.unsent():
            self._accumulator.remove(batch)
            batch.failed(error)
            self._metrics.failed(batch.queue.topic, batch.record_count)
            if batch.tally is not None:
                batch.tally.batch_failed(batch.record_count, error)
            if isinstance(batch, OpenBatch):
                batch.memory.give_back(self._pool)
            else:
                self._identity.given_up(batch)
                batch.done = True
                batch.free(self._pool)

    def _settled(self, queue: PartitionQueue) -> None:
        """Releases what the finished request of a queue held back."""
        self._identity.settled(queue)
        self._accumulator.answered(queue)

    def fail_all(self, error: KafkaSinkError) -> None:
        """Fails everything and returns the memory, because the producer has ended and its connections are closed."""
        for batch in self._accumulator.abort_all():
            writing = isinstance(batch, OpenBatch) and batch.writing  # the appending thread ends it (Appender._append_from)
            if isinstance(batch, OpenBatch) or not batch.done:
                self._report_failure(batch, error, tell=not writing)
            if not writing:
                batch.memory.give_back(self._pool)

    def _acked(self, acks: Sequence[tuple[SealedBatch, PartitionProduceResponse]], now_ms: int) -> None:
        """Completes all acknowledged batches of a response together: with 1,000 partitions it has some 40, and a lock or two for
        each was most of the cost.
        """
        by_tally: dict[Tally, list[tuple[SealedBatch, int]]] = {}
        for batch, answer in acks:
            batch.done = True
            if batch.result is not None:
                batch.result.acked(answer.base_offset, answer.log_append_time_ms)
            tally = batch.tally  # read once: a discard in the task's thread sets it to None
            if tally is None:
                continue
            if (own := by_tally.get(tally)) is None:
                by_tally[tally] = [(batch, answer.base_offset)]
            else:
                own.append((batch, answer.base_offset))
        batches = [batch for batch, _ in acks]
        self._identity.acked(batches)
        for tally, own in by_tally.items():
            tally.batches_acked(len(own), partial(_report_acked, own, now_ms))
        self._accumulator.acked(batches)
        for batch in batches:
            batch.payload = ()
        self._pool.take_back([batch.memory for batch in batches])

    def _not_acked(self, batch: SealedBatch, answer: PartitionProduceResponse, action: Action, now_ms: int) -> None:
        name = error_facts(answer.error_code).name
        batch.last_error = f"{name}: {quoted(answer.error_message)}" if answer.error_message else name
        is_late = now_ms - batch.created_ms >= self._config.delivery_timeout_ms
        again = action in _AGAIN and batch.attempts <= self._config.retries and not is_late
        tally = batch.tally
        if tally is not None:
            tally.batch_not_acked(name, again=again)
        if action in (Action.SPLIT, Action.HALVE):
            self._split(batch, self._accumulator.too_large(batch) if action is Action.SPLIT else batch.raw_size // 2)
            return
        if action is Action.REJECTED:
            self._reject(batch, answer)
            return
        if not again:
            # The same error as if it had expired before the answer.
            if action in _AGAIN and batch.attempts <= self._config.retries:
                self._drop(batch, self._timeout_error(batch, now_ms))
                return
            error = self._failure(batch, answer, batch.record_count, f"; {CREATE_IT}" if action is Action.TOPIC_UNKNOWN else "")
            if action is Action.FATAL:  # first, because more than this batch has failed
                self._identity.fatal(error)
            self._drop(batch, error)
            return
        self._metrics.retried(batch.queue.topic, batch.record_count)
        self._identity.will_retry(batch, action)
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            back_off_ms = min(SOON_MS, self._config.retry_backoff_ms)
        else:
            back_off_ms = self._backoff.backoff_ms(batch.attempts - 1)
        self._accumulator.reenqueue(batch, now_ms + back_off_ms)

    def _split(self, batch: SealedBatch, limit: int) -> None:
        """Splits a batch that was too large, or that has records to find (Java's Sender.completeBatch and
        RecordAccumulator.splitAndReenqueue). limit: bytes of records per part.

        The parts keep its age and start with no attempts. Like Java, this assumes that earlier attempts were not stored either.
        If one was, its response was lost, and the topic's max.message.bytes was lowered before the retry, the records are stored
        twice.
        """
        parts = split(batch, limit, self._pool)
        if batch.result is not None:
            results = batch.result.split([part.record_count for part in parts])
            for part, result in zip(parts, results, strict=True):
                part.result = result
        self._replace(batch, parts)
        self._metrics.batch_split()
        logger.info(
            "%s: a batch of %d records was rejected (%s) and is sent again as %d batches",
            batch.queue,
            batch.record_count,
            batch.last_error,
            len(parts),
        )

    def _reject(self, batch: SealedBatch, answer: PartitionProduceResponse) -> None:
        """Fails the records that the response names and sends the others again as a new batch, without attempts but with its age.
        As in `_split`, earlier attempts are assumed not to be stored. A scope that keeps rejected records gets them; only if they
        cannot be left out of its transaction, or if it has too many, does it fail.
        """
        errors = rejected(batch, answer) or {0: record_error(batch, answer, None)}  # a single record needs no name
        kept = self._kept(batch, errors)
        if isinstance(kept, RejectedRecords):
            self._leave_out(batch, errors, kept)
            return
        if len(errors) == batch.record_count:
            if batch.result is not None:
                batch.result.without(errors, batch.record_count)
            self._drop(batch, self._failure(batch, answer, batch.record_count, kept), rejected=True)
            return
        tally, error = batch.tally, self._failure(batch, answer, len(errors), kept)
        self._rebuild(batch, errors)
        logger.error("%s: %d of %d records failed: %s", batch.queue, len(errors), batch.record_count, error)
        if tally is not None:
            tally.records_failed(len(errors), error)
        self._identity.failed(error)

    def _kept(self, batch: SealedBatch, errors: Mapping[int, BrokerError]) -> RejectedRecords | str:
        """Returns the rejected records if their scope keeps them and everything else goes on without them, or why not."""
        tally = batch.tally
        if tally is None or not tally.keeps_rejected:
            return ""
        if not self._identity.may_leave_out(batch):
            return "; the transaction cannot go on without them, because an earlier attempt was not answered"
        records = rejected_records(batch, errors)
        return records if tally.may_keep(records) else "; more rejected records wait to be taken than buffer.memory holds"

    def _leave_out(self, batch: SealedBatch, errors: Mapping[int, BrokerError], kept: RejectedRecords) -> None:
        """Hands rejected records to their scope. The others are sent again."""
        tally = batch.tally
        is_whole = len(errors) == batch.record_count
        if is_whole:
            self._identity.left_out(batch)
            self._metrics.failed(batch.queue.topic, batch.record_count)
            if batch.result is not None:
                batch.result.without(errors, batch.record_count)
            batch.done = True
        else:
            self._rebuild(batch, errors)
        if tally is not None:
            tally.records_rejected(kept, batches=int(is_whole))
        if is_whole:
            self._accumulator.remove(batch)
            batch.free(self._pool)

    def _rebuild(self, batch: SealedBatch, errors: Mapping[int, BrokerError]) -> None:
        """Replaces a batch with one that has the records without errors."""
        (rest,) = rebuild(batch, [others(batch, errors)], self._pool)
        if batch.result is not None:
            rest.result = batch.result.without(errors, batch.record_count)
        self._replace(batch, [rest])
        self._metrics.failed(batch.queue.topic, len(errors))

    def _replace(self, batch: SealedBatch, parts: Sequence[SealedBatch]) -> None:
        self._identity.replaced(batch, parts)
        self._accumulator.replace(batch, parts)
        batch.free(self._pool)

    def _settle_expired(self, batch: SealedBatch, action: Action) -> None:
        if action is Action.DELIVERED:
            self._identity.acked([batch])
        else:
            self._identity.dropped(batch)
        batch.free(self._pool)

    def _drop(self, batch: SealedBatch, error: KafkaSinkError, *, rejected: bool = False) -> None:
        self._identity.dropped(batch)
        self._report_failure(batch, error, rejected=rejected)
        batch.done = True
        self._accumulator.remove(batch)
        batch.free(self._pool)

    def _report_failure(self, batch: Batch, error: KafkaSinkError, *, tell: bool = True, rejected: bool = False) -> None:
        # Counted first, as in Java's Sender.failBatch: a program that learns of the failure may read the metrics at once.
        self._metrics.failed(batch.queue.topic, batch.record_count)
        if tell:
            batch.failed(error)
        logger.error("%s: %s failed: %s", batch.queue, counted(batch.record_count, "record"), error)
        self._identity.failed(error)  # first: the notified thread finds a transaction that can only be aborted
        tally = batch.tally
        if tally is not None:
            tally.batch_failed(batch.record_count, error, rejected=rejected)

    def _failure(self, batch: SealedBatch, answer: PartitionProduceResponse, count: int, more: str = "") -> BrokerError:
        """Returns the error of `count` records of a batch; `more` is appended to the text."""
        queue, code = batch.queue, answer.error_code
        refused = [
            f"record {e.batch_index}: {quoted(e.batch_index_error_message or NO_REASON)}" for e in answer.record_errors[:3]
        ]
        rejects = f"{count} of " if count < batch.record_count else ""
        rejects += counted(batch.record_count, "record")
        what = f"topic {queue.topic} partition {queue.partition}: the broker rejected {rejects}: {batch.last_error}"
        parts = [what, *refused, *advice(batch, code), *filter(None, [self._identity.advice(code)])]
        if batch.attempts > 1:
            parts.append(f"tried {counted(batch.attempts, 'time')}")
        text = "; ".join(parts) + more
        identifier = self._identity.transactional_id or ""
        name = identifier if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED else queue.topic
        may_do_without = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not identifier
        way_out = f"; or {WITHOUT_IDEMPOTENCE}" if may_do_without else ""
        return self._rights().error(text, ApiKey.PRODUCE, code, name, more=way_out, topic=queue.topic, partition=queue.partition)

    def producer_error(self, answer: PartitionProduceResponse) -> BrokerError:
        """Returns why the producer cannot continue, from a response that says so."""
        name = error_facts(answer.error_code).name
        text = f"the producer cannot continue: {name}: {quoted(answer.error_message or NO_REASON)}"
        return self._rights().error(text, ApiKey.PRODUCE, answer.error_code)

    def _timeout_error(self, batch: Batch, now_ms: int) -> DeliveryTimeoutError:
        queue, tried = batch.queue, self._what_was_tried(batch)
        if queue.leader is not None and (throttled := self._throttled(queue.leader, now_ms)):
            tried = f"{tried}; {throttled}, or raise delivery.timeout.ms"
        return DeliveryTimeoutError(
            f"topic {queue.topic} partition {queue.partition}: {counted(batch.record_count, 'record was', 'records were')}"
            f" not acknowledged within delivery.timeout.ms ({now_ms - batch.created_ms} ms passed); {tried}",
            topic=queue.topic,
            partition=queue.partition,
        )

    def _what_was_tried(self, batch: Batch) -> str:
        if isinstance(batch, OpenBatch) or not batch.attempts:
            never = "never sent"
            if isinstance(batch, SealedBatch) and batch.last_error:
                never = f"split after {batch.last_error} and not sent since"
            return f"{never}: {self._unsent_reason(batch.queue)}"
        last = batch.last_error or "no response yet"
        if batch.queue.leader is None:
            why = f"; {self._unsent_reason(batch.queue)}"
        else:
            why = f"; {CREATE_IT}" if last.startswith(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name) else ""
        return f"sent {counted(batch.attempts, 'time')}, may have been stored; last error: {last}{why}"


def _report_acked(acks: Sequence[tuple[SealedBatch, int]], now_ms: int, report: DeliveryReport) -> None:
    """Adds batches that one response acknowledged, each with its base offset (negative: not known)."""
    count, latencies = report.partitions.count, report.ack_latency
    all_records = all_bytes = compressed_bytes = 0
    sent_ms, bucket = now_ms, latency_bucket(0)
    for batch, base_offset in acks:
        queue, records, size = batch.queue, batch.record_count, batch.raw_size
        topic = queue.topic
        all_records += records
        all_bytes += size
        compressed_bytes += batch.size
        if base_offset >= 0:
            count(topic, queue.partition, records, size, base_offset, base_offset + records - 1)
        else:
            count(topic, queue.partition, records, size)
        if batch.first_sent_ms != sent_ms:  # nearly all were first sent in this request
            sent_ms = batch.first_sent_ms
            bucket = latency_bucket(now_ms - sent_ms)
        if (histogram := latencies.get(topic)) is None:
            histogram = latencies[topic] = [0] * LATENCY_BUCKETS
        histogram[bucket] += 1
    report.records += all_records
    report.bytes += all_bytes
    report.compressed_bytes += compressed_bytes
    report.batches += len(acks)
