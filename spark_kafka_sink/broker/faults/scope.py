"""Which requests a fault is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.broker.faults.asked_parts import SHAPES, TopicOf, Wanted, asks_for
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey


@dataclass(frozen=True, slots=True)
class Scope:
    """None: any. With a topic, and perhaps a partition of it, only requests that ask for it, among others or alone.

    when: is given the request's body.
    """

    api: ApiKey | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    when: Callable[[Any], bool] | None = None

    def check(self, is_broker: Callable[[int], bool]) -> None:
        """Raises OptionError for what can match nothing."""
        if self.broker is not None and not is_broker(self.broker):
            raise OptionError(f"there is no broker {self.broker}", option="broker")
        if self.partition is not None and (self.topic is None or self.partition < 0):
            raise OptionError(f"partition {self.partition}: give the topic as well, and a number from 0 on", option="partition")
        if self.topic is None or self.api is None:
            return
        shape = SHAPES.get(self.api)
        if shape is None:
            known = ", ".join(key.name for key in SHAPES)
            raise OptionError(f"{self.api.name} cannot be narrowed to a topic; those that can: {known}", option="topic")
        if self.partition is not None and shape.partitions is None:
            raise OptionError(f"{self.api.name} asks for topics, not for partitions of them", option="partition")

    def matches(self, broker: int, request: Request, topic_of: TopicOf) -> bool:
        return (
            self.api in (None, request.api.key)
            and self.broker in (None, broker)
            and self.client_id in (None, request.header.client_id)
            and (self.topic is None or asks_for(request.api.key, request.body, self.wanted(topic_of)))
            and (self.when is None or self.when(request.body))
        )

    def wanted(self, topic_of: TopicOf) -> Wanted:
        """Of the topics and partitions in a request, those that it is about."""

        def is_wanted(topic: object, partition: int | None) -> bool:
            return (self.topic is None or topic_of(topic) == self.topic) and self.partition in (None, partition)

        return is_wanted

    def is_about(self, broker: int, topic: str) -> bool:
        """For what happens in a log and not in a request."""
        return self.broker in (None, broker) and self.topic in (None, topic)

    def __str__(self) -> str:
        parts = {"broker": self.broker, "topic": self.topic, "partition": self.partition, "client_id": self.client_id}
        where = "".join(f" {name}={value}" for name, value in parts.items() if value is not None)
        return f"{'any request' if self.api is None else self.api.name}{where}"
