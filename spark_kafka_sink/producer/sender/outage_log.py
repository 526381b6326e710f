"""Tells the log of brokers that do not answer and of topics without leaders, while records or a transaction wait for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.sender.silence_watch import News, SilenceWatch, Subject

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transactions.transaction_sender import TransactionSender

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1000
FOREVER_MS = 2**62


class OutageLog:
    """Used by the sender's thread only. Costs a look at each unfinished batch once a second."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        client: NetworkClient,
        metadata: ProducerMetadata,
        why_unsent: Callable[[int], str],
        transactions: TransactionSender | None = None,
    ) -> None:
        """why_unsent: what keeps a broker from taking requests. transactions: of a transactional producer."""
        self._transactions = transactions
        self._accumulator = accumulator
        self._client = client
        self._metadata = metadata
        self._why_unsent = why_unsent
        self._watch = SilenceWatch()
        self._look_ms = -(2**63)
        self.heard = self._watch.heard

    def look(self, now_ms: int) -> int:
        """Tells what is to be told now. Returns in how many ms to look again."""
        if now_ms < self._look_ms:
            return self._look_ms - now_ms
        others: set[Subject] = {*self._metadata.waiting_topics()}
        if self._transactions is not None and (request := self._transactions.waits_for) is not None:
            others.add(request)
        if not (others or self._accumulator.has_incomplete()) and self._watch.is_quiet:
            return FOREVER_MS
        self._look_ms = now_ms + LOOK_EVERY_MS
        records: dict[Subject, int] = dict(self._accumulator.held_up().items())
        for leader in records:
            if isinstance(leader, int) and self._client.is_throttled(leader, now_ms):
                self._watch.heard(leader)  # it has asked for this silence
        for subject, news, ms in self._watch.look(records.keys() | others, now_ms):
            if news is News.WAITING:
                log.warning("%s", self._waiting(subject, records.get(subject, 0), ms // 1000))
            elif news is News.OVER:
                log.info("%s answers again, after %d s", self._name(subject), ms // 1000)
            else:
                log.info("%s: nothing waits for it any more, after %d s", self._name(subject), ms // 1000)
        return LOOK_EVERY_MS

    def _waiting(self, subject: Subject, records: int, seconds: int) -> str:
        name = self._name(subject)
        if isinstance(subject, tuple):
            assert self._transactions is not None
            return f"{name}: a transaction has waited {seconds} s; {self._transactions.why}"
        if isinstance(subject, str):
            who = f"{records:,} records have waited {seconds} s for a leader" if records else f"an append has waited {seconds} s"
            return f"{name}: {who}; {self._metadata.why_no_leader(subject)}"
        unanswered = self._client.in_flight_count(subject)
        why = f"{unanswered} requests to it are unanswered" if unanswered else self._why_unsent(subject)
        if unanswered or self._client.why_not_ready(subject):
            return f"{name} has not answered for {seconds} s, and {records:,} records wait for it; {why}"
        # Nothing was asked of it: there is no producer id, or a retry backs off.
        return f"{records:,} records have waited {seconds} s for {name}; {why}"

    def _name(self, subject: Subject) -> str:
        if isinstance(subject, tuple):
            return f"transactional id {subject[0]}"
        if isinstance(subject, str):
            return f"topic {subject}"
        return str(self._metadata.fetch().nodes.get(subject) or f"broker {subject}")
