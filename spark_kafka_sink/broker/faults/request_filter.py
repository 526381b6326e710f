"""Filters for the requests, topics and partitions that a fault covers, with one table for all APIs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message

TopicOf = Callable[[object], str | None]
"""Returns the name of a topic in a message, which may have only its id; None for an unknown id."""

IsAffected = Callable[[object, int | None], bool]
"""Returns whether a fault covers a topic and a partition's number (None: the API has no partitions)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The names of fields in a request: its topics, a topic's partitions (None: there are none), a partition's number (None: the
    partition is the number). The same for the response.
    """

    topics: str
    partitions: str | None
    index: str | None
    answered_topics: str
    answered_partitions: str | None
    answered_index: str


SHAPES: Final[Mapping[ApiKey, Shape]] = {
    ApiKey.PRODUCE: Shape("topic_data", "partition_data", "index", "responses", "partition_responses", "index"),
    ApiKey.FETCH: Shape("topics", "partitions", "partition", "responses", "partitions", "partition_index"),
    ApiKey.LIST_OFFSETS: Shape("topics", "partitions", "partition_index", "topics", "partitions", "partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Shape("topics", "partitions", "partition", "topics", "partitions", "partition"),
    ApiKey.DELETE_RECORDS: Shape("topics", "partitions", "partition_index", "topics", "partitions", "partition_index"),
    ApiKey.OFFSET_COMMIT: Shape("topics", "partitions", "partition_index", "topics", "partitions", "partition_index"),
    ApiKey.TXN_OFFSET_COMMIT: Shape("topics", "partitions", "partition_index", "topics", "partitions", "partition_index"),
    # Up to v3, which producers send.
    ApiKey.ADD_PARTITIONS_TO_TXN: Shape(
        "v3_and_below_topics", "partitions", None, "results_by_topic_v3_and_below", "results_by_partition", "partition_index"
    ),
    ApiKey.METADATA: Shape("topics", None, None, "topics", None, ""),
    ApiKey.CREATE_TOPICS: Shape("topics", None, None, "topics", None, ""),
    ApiKey.CREATE_PARTITIONS: Shape("topics", None, None, "results", None, ""),
}
"""The APIs whose requests can be narrowed to a topic."""


def asks_for(key: ApiKey, body: Message, is_affected: IsAffected) -> bool:
    """Returns whether a request includes an affected part. A Metadata request for all topics includes each topic."""
    shape = SHAPES.get(key)
    if shape is None:
        return False
    if getattr(body, shape.topics) is None:
        return True
    return any(is_affected(topic, index) for topic, index in _parts(shape, body))


def split(key: ApiKey, body: Message, is_affected: IsAffected) -> tuple[Message, Message | None]:
    """Returns the request with only the affected parts, and one with only the others; None if there are no others."""
    shape = SHAPES[key]
    rest = _narrowed(shape, body, lambda topic, index: not is_affected(topic, index))
    return _narrowed(shape, body, is_affected), rest if getattr(rest, shape.topics) else None


def merged(key: ApiKey, answer: Message, failed: Message) -> Message:
    """Returns the response with its topics or partitions replaced by those of `failed`."""
    shape = SHAPES[key]
    changed = {name_or_id(topic): topic for topic in getattr(failed, shape.answered_topics)}
    kept = [_merged_topic(shape, topic, changed.pop(name_or_id(topic), None)) for topic in getattr(answer, shape.answered_topics)]
    return replace(answer, **{shape.answered_topics: (*kept, *changed.values())})


def name_or_id(topic: object) -> str | uuid.UUID:
    """Returns a topic's name from a message, or its id if that is all the message has."""
    name = getattr(topic, "name", None) or getattr(topic, "topic", None)
    found: str | uuid.UUID = name or topic.topic_id  # type: ignore[attr-defined]
    return found


def _parts(shape: Shape, body: Message) -> Iterator[tuple[object, int | None]]:
    for topic in getattr(body, shape.topics):
        for index in (None,) if shape.partitions is None else _indexes(shape, getattr(topic, shape.partitions)):
            yield topic, index


def _indexes(shape: Shape, partitions: Sequence[Any]) -> Iterator[int]:
    return (partition if shape.index is None else getattr(partition, shape.index) for partition in partitions)


def _narrowed(shape: Shape, body: Message, is_affected: IsAffected) -> Message:
    topics = (_narrowed_topic(shape, topic, is_affected) for topic in getattr(body, shape.topics))
    return replace(body, **{shape.topics: tuple(topic for topic in topics if topic is not None)})


def _narrowed_topic(shape: Shape, topic: Any, is_affected: IsAffected) -> Any:
    if shape.partitions is None:
        return topic if is_affected(topic, None) else None
    every = getattr(topic, shape.partitions)
    kept = tuple(part for part, index in zip(every, _indexes(shape, every), strict=True) if is_affected(topic, index))
    return replace(topic, **{shape.partitions: kept}) if kept else None


def _merged_topic(shape: Shape, topic: Any, failed: Any) -> Any:
    if failed is None:
        return topic
    if shape.answered_partitions is None:
        return failed
    new = getattr(failed, shape.answered_partitions)
    gone = {getattr(part, shape.answered_index) for part in new}
    kept = (part for part in getattr(topic, shape.answered_partitions) if getattr(part, shape.answered_index) not in gone)
    return replace(topic, **{shape.answered_partitions: (*kept, *new)})


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """The requests that a fault covers. None matches any. A topic or partition matches requests that include it.

    `when` is called with the request's body.
    """

    api: ApiKey | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    when: Callable[[Any], bool] | None = None

    def check(self, is_broker: Callable[[int], bool]) -> None:
        """Raises OptionError for a filter that can match nothing."""
        if self.broker is not None and not is_broker(self.broker):
            raise OptionError(f"there is no broker {self.broker}", option="broker")
        if self.partition is not None and (self.topic is None or self.partition < 0):
            raise OptionError(
                f"partition={self.partition} is not valid: give the topic too, and a number from 0", option="partition"
            )
        if self.topic is None or self.api is None:
            return
        shape = SHAPES.get(self.api)
        if shape is None:
            known = ", ".join(key.name for key in SHAPES)
            raise OptionError(f"{self.api.name} cannot be narrowed to a topic; it must be one of {known}", option="topic")
        if self.partition is not None and shape.partitions is None:
            raise OptionError(f"{self.api.name} has topics but no partitions: remove partition=", option="partition")

    def matches(self, broker: int, request: Request, topic_of: TopicOf) -> bool:
        return (
            self.api in (None, request.api.key)
            and self.broker in (None, broker)
            and self.client_id in (None, request.header.client_id)
            and (self.topic is None or asks_for(request.api.key, request.body, self.is_affected(topic_of)))
            and (self.when is None or self.when(request.body))
        )

    def is_affected(self, topic_of: TopicOf) -> IsAffected:
        """Returns a function that tells whether this filter covers a topic and partition of a request."""

        def affects(topic: object, partition: int | None) -> bool:
            return (self.topic is None or topic_of(topic) == self.topic) and self.partition in (None, partition)

        return affects

    def is_about(self, broker: int, topic: str) -> bool:
        """Returns whether this filter covers appends to a topic."""
        return self.broker in (None, broker) and self.topic in (None, topic)

    def __str__(self) -> str:
        parts = {"broker": self.broker, "topic": self.topic, "partition": self.partition, "client_id": self.client_id}
        where = "".join(f" {name}={value}" for name, value in parts.items() if value is not None)
        return f"{'any request' if self.api is None else self.api.name}{where}"
