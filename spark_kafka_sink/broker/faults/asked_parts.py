"""The topics and partitions in requests and answers, where single ones of them are to fail: one table for all APIs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message

TopicOf = Callable[[object], str | None]
"""The name of a topic in a message, which may have its id only; None for an id that is not known."""

Wanted = Callable[[object, int | None], bool]
"""Given a topic in a request and the number of a partition (None: the API has none)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Names of fields. In the request: of the topics, of a topic's partitions (None: there are none) and of a partition's
    number (None: the partition is the number). In the response the same."""

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
    # Up to v3, which is what producers send.
    ApiKey.ADD_PARTITIONS_TO_TXN: Shape(
        "v3_and_below_topics", "partitions", None, "results_by_topic_v3_and_below", "results_by_partition", "partition_index"
    ),
    ApiKey.METADATA: Shape("topics", None, None, "topics", None, ""),
    ApiKey.CREATE_TOPICS: Shape("topics", None, None, "topics", None, ""),
    ApiKey.CREATE_PARTITIONS: Shape("topics", None, None, "results", None, ""),
}
"""The APIs whose requests can be narrowed to a topic."""


def asks_for(key: ApiKey, body: Message, wanted: Wanted) -> bool:
    """A Metadata request for all topics asks for each."""
    shape = SHAPES.get(key)
    if shape is None:
        return False
    if getattr(body, shape.topics) is None:
        return True
    return any(wanted(topic, index) for topic, index in _parts(shape, body))


def split(key: ApiKey, body: Message, wanted: Wanted) -> tuple[Message, Message | None]:
    """The request with the wanted parts alone, and that with the others; None if there are none."""
    shape = SHAPES[key]
    rest = _narrowed(shape, body, lambda topic, index: not wanted(topic, index))
    return _narrowed(shape, body, wanted), rest if getattr(rest, shape.topics) else None


def merged(key: ApiKey, answer: Message, failed: Message) -> Message:
    """The answer, with what `failed` says in place of what it says of the same topics or partitions."""
    shape = SHAPES[key]
    changed = {name_or_id(topic): topic for topic in getattr(failed, shape.answered_topics)}
    kept = [_merged_topic(shape, topic, changed.pop(name_or_id(topic), None)) for topic in getattr(answer, shape.answered_topics)]
    return replace(answer, **{shape.answered_topics: (*kept, *changed.values())})


def name_or_id(topic: object) -> str | uuid.UUID:
    """As a message has it, one or the other."""
    name = getattr(topic, "name", None) or getattr(topic, "topic", None)
    found: str | uuid.UUID = name or topic.topic_id  # type: ignore[attr-defined]
    return found


def _parts(shape: Shape, body: Message) -> Iterator[tuple[object, int | None]]:
    for topic in getattr(body, shape.topics):
        for index in (None,) if shape.partitions is None else _indexes(shape, getattr(topic, shape.partitions)):
            yield topic, index


def _indexes(shape: Shape, partitions: Sequence[Any]) -> Iterator[int]:
    return (partition if shape.index is None else getattr(partition, shape.index) for partition in partitions)


def _narrowed(shape: Shape, body: Message, wanted: Wanted) -> Message:
    topics = (_narrowed_topic(shape, topic, wanted) for topic in getattr(body, shape.topics))
    return replace(body, **{shape.topics: tuple(topic for topic in topics if topic is not None)})


def _narrowed_topic(shape: Shape, topic: Any, wanted: Wanted) -> Any:
    if shape.partitions is None:
        return topic if wanted(topic, None) else None
    every = getattr(topic, shape.partitions)
    kept = tuple(part for part, index in zip(every, _indexes(shape, every), strict=True) if wanted(topic, index))
    return replace(topic, **{shape.partitions: kept}) if kept else None


def _merged_topic(shape: Shape, topic: Any, failed: Any) -> Any:
    if failed is None or shape.answered_partitions is None:
        return topic if failed is None else failed
    new = getattr(failed, shape.answered_partitions)
    gone = {getattr(part, shape.answered_index) for part in new}
    kept = (part for part in getattr(topic, shape.answered_partitions) if getattr(part, shape.answered_index) not in gone)
    return replace(topic, **{shape.answered_partitions: (*kept, *new)})
