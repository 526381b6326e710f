"""Metadata of the brokers, and of those topics that a ClusterClient was asked about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.config import ProducerConfig


class ClusterMetadata(Metadata):
    """Belongs to the thread that asks. No topic comes into being by being asked for: whoever wants one chooses its configs."""

    allow_auto_topic_creation: ClassVar[bool] = False

    def __init__(self, config: ProducerConfig) -> None:
        super().__init__(config)
        self._topics: set[str] = set()

    def add(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            self.refresh()

    def refresh(self) -> int:
        """Ask again at once; the version that the answer will serve. A producer's back-off between answers that say nothing new
        would be up to a second of each commit; here whoever asks again pauses before."""
        return self.request_update_for_new_topics()

    @property
    def answered(self) -> int:
        """The newest version that an answer has served: `refresh`'s."""
        return self._answered

    def said(self, topic: str = "") -> str:
        """What brokers said last, of a topic or by not answering."""
        return self._answers.about(topic, 0)

    def _topics_to_ask(self, partial: bool) -> Iterable[str]:
        return sorted(self._topics)

    def _retains(self, topic: str, now_ms: int) -> bool:
        return topic in self._topics
