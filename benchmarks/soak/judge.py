"""A slow consumer, of librdkafka, that judges a soak run: each row is there once, and the rows of a key are in order."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from numpy.typing import NDArray

from benchmarks.soak.stream import KEYS

MOST_PROBLEMS = 10
AT_ONCE = 1_000


@dataclass(slots=True)
class Seen:
    """The rows that were read of one topic. Row n of a key must come before a later row of it."""

    times: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1 << 16, np.uint8))
    last: NDArray[np.int64] = field(default_factory=lambda: np.full(KEYS, -1, np.int64))
    records: int = 0
    out_of_order: int = 0

    def add(self, rows: NDArray[np.int64]) -> None:
        """Counts rows in the order in which they were read."""
        if not len(rows):
            return
        while len(self.times) <= rows.max():
            self.times = np.concatenate([self.times, np.zeros_like(self.times)])
        self.records += len(rows)
        np.add.at(self.times, rows, np.uint8(1))
        for row in rows.tolist():
            key = row % KEYS
            self.out_of_order += bool(row < self.last[key])
            self.last[key] = max(row, self.last[key])

    def problems(self, committed: int, batch_rows: int) -> list[str]:
        """Returns what is wrong, one text for each kind.

        The query was stopped at any moment, so at most one micro-batch behind the committed ones may be there, too.

        Args:
            committed: rows of the micro-batches that Spark has committed.
            batch_rows: rows of a micro-batch.
        """
        known = np.zeros(max(committed, len(self.times)), np.uint8)
        known[: len(self.times)] = self.times
        found = []
        for kind, rows in (
            ("lost", np.flatnonzero(known[:committed] == 0)),
            ("written twice or more", np.flatnonzero(known > 1)),
            ("read that no committed or running micro-batch has", np.flatnonzero(known[committed + batch_rows :])),
        ):
            if len(rows):
                found.append(f"{len(rows):,} rows {kind}, such as {', '.join(map(str, rows[:MOST_PROBLEMS].tolist()))}")
        if self.out_of_order:
            found.append(f"{self.out_of_order:,} rows out of order within their key")
        return found


class SlowConsumer:
    """Reads one topic from its beginning, at most `most_per_s` records a second until `catch_up`.

    Threads: its own thread reads and writes `seen`, `lag` and `error`; others read `lag` at any time and the rest after `stop`.
    """

    def __init__(self, bootstrap_servers: str, topic: str, most_per_s: int) -> None:
        self.seen = Seen()
        self.lag = 0
        self.error: BaseException | None = None
        self._topic = topic
        self._most_per_s = most_per_s
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"judge-of-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "check.crcs": True,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        self._hurry = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"judge-of-{topic}", daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([self._topic])
        self._thread.start()

    def catch_up(self, records: int, deadline_s: float) -> None:
        """Reads without pause until it has this many records and nothing more comes for 10 s, or the deadline has passed."""
        self._hurry.set()
        deadline, quiet_since, before = time.monotonic() + deadline_s, time.monotonic(), -1
        while time.monotonic() < deadline and self._thread.is_alive():
            if self.seen.records != before:
                before, quiet_since = self.seen.records, time.monotonic()
            elif before >= records and time.monotonic() - quiet_since > 10:
                return
            self._done.wait(0.2)

    def stop(self) -> None:
        self._done.set()
        self._thread.join(30)
        self._consumer.close()

    def _run(self) -> None:
        try:
            while not self._done.is_set():
                begun = time.monotonic()
                messages = self._consumer.consume(AT_ONCE, timeout=0.5)
                self.seen.add(np.array([row for row in map(_row, messages) if row is not None], np.int64))
                self.lag = self._lag()
                if not self._hurry.is_set():
                    self._done.wait(max(0.0, len(messages) / self._most_per_s - (time.monotonic() - begun)))
        except BaseException as error:
            self.error = error

    def _lag(self) -> int:
        """Returns how many offsets it is behind, as far as the last fetches tell."""
        lag = 0
        for place in self._consumer.position(self._consumer.assignment()):
            try:
                _, end = self._consumer.get_watermark_offsets(place, cached=True)
            except KafkaException:
                continue
            lag += max(0, end - max(place.offset, 0))
        return lag


def _row(message: Message) -> int | None:
    """Returns the number of a row; None for an event of the client, such as a broker that is away."""
    error = message.error()
    if error is None:
        return int(message.value() or b"-1")
    if error.fatal() or not (error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)):
        raise KafkaException(error)
    return None
