"""Log lines about what records or transactions wait for: silent brokers, topics without leaders, and throttling (KIP-219)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 1000

WARN_AFTER_MS = 5_000
"""A failed leader is replaced within seconds, and a broker that restarts cleanly at once. A longer outage deserves a line, long
before delivery.timeout.ms (120 s) ends it.
"""

WARN_EVERY_MS = 30_000
"""Four lines before delivery.timeout.ms, and 120 an hour from a broker that stays away."""

Subject: TypeAlias = int | str | tuple[str, int]
"""What a wait is for: a broker by id, a topic by name, or a transaction's request by transactional id and number."""


class News(Enum):
    """WAITING: a wait reached the threshold or goes on. OVER: the subject responds again. LEFT: nothing waits for it any more."""

    WAITING = auto()
    OVER = auto()
    LEFT = auto()


@dataclass(slots=True)
class _Silence:
    since_ms: int
    warned_ms: int | None = None


class SilenceWatch:
    """The current silence of each subject. It starts when something begins to wait, and restarts with every sign of life."""

    def __init__(self) -> None:
        self._silences: dict[Subject, _Silence] = {}
        self._heard: set[Subject] = set()

    def heard(self, subject: Subject) -> None:
        self._heard.add(subject)

    @property
    def is_quiet(self) -> bool:
        return not self._silences

    def look(self, waiting: Collection[Subject], now_ms: int) -> list[tuple[Subject, News, int]]:
        """Returns the news to log, with the length of each silence in ms. `waiting` is what is waited for now."""
        news: list[tuple[Subject, News, int]] = []
        for subject, silence in list(self._silences.items()):
            if subject in self._heard or subject not in waiting:
                del self._silences[subject]
                if silence.warned_ms is not None:
                    news.append((subject, News.OVER if subject in self._heard else News.LEFT, now_ms - silence.since_ms))
        self._heard.clear()
        for subject in waiting:
            silence = self._silences.setdefault(subject, _Silence(now_ms))
            due_ms = silence.since_ms + WARN_AFTER_MS if silence.warned_ms is None else silence.warned_ms + WARN_EVERY_MS
            if now_ms >= due_ms:
                silence.warned_ms = now_ms
                news.append((subject, News.WAITING, now_ms - silence.since_ms))
        return news


class OutageLog:
    """Logs unresponsive brokers and topics without leaders, while records or a transaction wait for them.

    Used only by the sender thread. Once a second it inspects each unfinished batch.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        identity: Identity,
        blocked_reason: Callable[[int], str],
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._identity = identity
        self._blocked_reason = blocked_reason
        self._watch = SilenceWatch()
        self._look_ms = -(2**63)
        self.heard = self._watch.heard

    def look(self, now_ms: int) -> int:
        """Logs what is due. Returns the time until the next look, in ms."""
        if now_ms < self._look_ms:
            return self._look_ms - now_ms
        others: set[Subject] = {*self._metadata.waiting_topics()}
        if (request := self._identity.waits_for) is not None:
            others.add(request)
        if not (others or self._accumulator.has_incomplete()) and self._watch.is_quiet:
            return FOREVER_MS
        self._look_ms = now_ms + LOOK_EVERY_MS
        records: dict[Subject, int] = dict(self._accumulator.held_up().items())
        for leader in records:
            if isinstance(leader, int) and self._client.is_throttled(leader, now_ms):
                self._watch.heard(leader)  # it requested this pause
        for subject, news, ms in self._watch.look(records.keys() | others, now_ms):
            if news is News.WAITING:
                logger.warning("%s", self._waiting(subject, records.get(subject, 0), ms // 1000))
            elif news is News.OVER:
                logger.info("%s responds again, after %d s", self._name(subject), ms // 1000)
            else:
                logger.info("%s: nothing waits for it any more, after %d s", self._name(subject), ms // 1000)
        return LOOK_EVERY_MS

    def _waiting(self, subject: Subject, records: int, seconds: int) -> str:
        name = self._name(subject)
        if isinstance(subject, tuple):
            return f"{name}: a transaction has been waiting for {seconds} s; {self._identity.blocked_reason}"
        if isinstance(subject, str):
            who = (
                f"{counted(records, 'record has', 'records have')} been waiting for a leader for {seconds} s"
                if records
                else f"an append has been waiting for {seconds} s"
            )
            return f"{name}: {who}; {self._metadata.why_no_leader(subject)}"
        unanswered = self._client.in_flight_count(subject)
        why = (
            f"{counted(unanswered, 'request to it has', 'requests to it have')} no response"
            if unanswered
            else self._blocked_reason(subject)
        )
        if unanswered or self._client.why_not_ready(subject):
            waiting = counted(records, "record is", "records are")
            return f"{name} has not responded for {seconds} s, and {waiting} waiting for it; {why}"
        # Nothing was requested: there is no producer id, or a retry is in back-off.
        return f"{counted(records, 'record has', 'records have')} been waiting for {name} for {seconds} s; {why}"

    def _name(self, subject: Subject) -> str:
        if isinstance(subject, tuple):
            return f"transactional id {subject[0]}"
        if isinstance(subject, str):
            return f"topic {subject}"
        return str(self._metadata.fetch().nodes.get(subject) or f"broker {subject}")


THROTTLED_AFTER_MS = 5_000
"""A shorter pause is what a quota is for, and only delays the records. A longer one deserves a line, long before
delivery.timeout.ms (120 s) ends a batch.
"""

THROTTLED_EVERY_MS = 300_000
"""A client that stays above its quota is throttled all the time: twelve lines an hour."""

OVER_AFTER_MS = 60_000
"""A broker that has not throttled for this long starts again from zero."""


@dataclass(slots=True)
class _Throttling:
    """Pauses of one broker in a row. until_ms: when the last one ends. paused_ms: the sum of all, without overlaps."""

    since_ms: int
    until_ms: int
    paused_ms: int = 0
    warned_ms: int | None = None


class ThrottleLog:
    """The pauses of each broker. Used only by the sender thread; times are monotonic ms.

    The client sends nothing to a broker during a pause (Connections). Responses to requests in flight repeat a pause, so only
    what they add to it counts.
    """

    def __init__(self, client_id: str, name_of: Callable[[int], str]) -> None:
        self._quotas = f"producer_byte_rate or request_percentage of its user or of client.id {client_id!r}"
        self._name_of = name_of
        self._brokers: dict[int, _Throttling] = {}

    def answered(self, node: int, throttle_ms: int, now_ms: int) -> int:
        """Records a response's throttle time. Returns the ms that it adds to the broker's pause. Logs a warning if it is due."""
        broker = self._brokers.get(node)
        if broker is None or now_ms - broker.until_ms > OVER_AFTER_MS:
            broker = self._brokers[node] = _Throttling(now_ms, now_ms)
        added_ms = max(now_ms + throttle_ms - max(broker.until_ms, now_ms), 0)
        broker.until_ms = max(broker.until_ms, now_ms + throttle_ms)
        broker.paused_ms += added_ms
        is_due = broker.warned_ms is None or now_ms - broker.warned_ms >= THROTTLED_EVERY_MS
        if is_due and broker.paused_ms >= THROTTLED_AFTER_MS:
            broker.warned_ms = now_ms
            logger.warning("%s", self._text(node, broker, now_ms))
        return added_ms

    def reason(self, node: int, now_ms: int) -> str:
        """Returns why records for a broker are late if it has throttled in the last minute, else an empty text."""
        broker = self._brokers.get(node)
        if broker is None or now_ms - broker.until_ms > OVER_AFTER_MS:
            return ""
        return self._text(node, broker, now_ms)

    def _text(self, node: int, broker: _Throttling, now_ms: int) -> str:
        left_ms = max(broker.until_ms - now_ms, 0)
        return (
            f"{self._name_of(node)} throttles this client, because it exceeds a quota ({self._quotas}): in the last"
            f" {(now_ms - broker.since_ms) / 1000:,.0f} s it asked for pauses of {broker.paused_ms / 1000:,.1f} s, of which"
            f" {left_ms / 1000:,.1f} s are left; raise the quota, or set max.bytes.per.second to less than the quota"
        )
