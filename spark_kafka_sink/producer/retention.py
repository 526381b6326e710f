"""Records that brokers delete soon, because their timestamps are older than the topic's retention.ms."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.options.option import INT64_MAX
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.records.columns import NO_TIMESTAMP
from spark_kafka_sink.reports.delivery_report import DELETED_SOON

logger = logging.getLogger(__name__)

_RECENT_MS: Final = 60_000
_PATIENCE_S: Final = 5.0


class Retention:
    """Counts records that are older than their topic's retention.ms.

    When a topic gets a record that is older than a minute, it asks the brokers about all of the producer's topics at once, over a
    connection of its own. If they do not respond it never asks again. Any thread may call it; where none may wait, it does not
    ask.
    """

    def __init__(self, config: ProducerConfig, lifecycle: Lifecycle, metadata: ProducerMetadata, *, warns: bool) -> None:
        """warns: whether to log a warning for each topic that gets such records."""
        self._config = replace(config, transactional_id=None)  # without idempotence, as a ClusterClient is, it has none
        self._lifecycle = lifecycle
        self._metadata = metadata
        self._warns = warns
        self._known: dict[str, int] = {}
        self._asks = True
        self._asking = Lock()
        self._warned: set[str] = set()

    def count(self, topic: str, times: NDArray[np.int64]) -> int:
        """Returns how many of the timestamps are too old."""
        now = time.time_ns() // 1_000_000
        if times.min(initial=INT64_MAX) >= now - _RECENT_MS:
            return 0
        given = times[times != NO_TIMESTAMP]
        self.learn(topic, int(given.min(initial=now)))
        old = int(np.count_nonzero(given < now - self._known.get(topic, now)))
        if old and self._warns and topic not in self._warned:
            self._warned.add(topic)
            records, limit = counted(old, "record is", "records are"), self._known[topic]
            logger.warning("topic %s: %s older than its retention.ms=%d: %s", topic, records, limit, DELETED_SOON)
        return old

    def learn(self, topic: str, timestamp: int) -> None:
        """Asks the brokers about the topic if a timestamp may be too old and they were not asked before."""
        is_recent = timestamp >= time.time_ns() // 1_000_000 - _RECENT_MS
        if is_recent or topic in self._known or self._lifecycle.must_not_wait:
            return
        # Here, because few tasks need it.
        from spark_kafka_sink.client.cluster_client import ClusterClient
        from spark_kafka_sink.client.topics import RETENTION, all_time_limits

        with self._asking:
            known = self._metadata.fetch().topics.items()
            # Not those that brokers do not know: they would be asked for until the time is over.
            topics = {topic, *(name for name, each in known if not each.error)} - self._known.keys()
            found = dict.fromkeys(topics, INT64_MAX)  # if they do not tell
            try:
                if self._asks and topics:
                    with ClusterClient(self._config) as client:
                        for name, limits in all_time_limits(client, topics, time.monotonic() + _PATIENCE_S):
                            found[name] = limits.get(RETENTION, INT64_MAX)
            except KafkaSinkError as error:
                self._asks = False
                logger.info("whether records are older than the retention.ms of their topics is not known: %s", error)
            self._known.update(found)
