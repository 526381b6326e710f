"""One state of the cluster, which does not change."""

from __future__ import annotations

import uuid

from spark_kafka_sink.broker.cluster.leadership import new_partition
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC, MetadataImage, TopicState
from tests.broker.cluster.clusters import broker


def topic(name: str, partitions: int = 1) -> TopicState:
    return TopicState(name, uuid.uuid4(), tuple(new_partition(index, (1,), (1,)) for index in range(partitions)))


def test_topics_are_found_by_name_and_id() -> None:
    known = topic("t", 2)
    image = MetadataImage().with_topics(known)

    assert image.topic_of_id(known.topic_id) is known
    assert image.partition("t", 1) is known.partitions[1]
    assert [image.partition(name, index) for name, index in [("t", 2), ("t", -1), ("x", 0)]] == [None, None, None]
    assert image.topic_of_id(uuid.uuid4()) is None


def test_a_changed_image_leaves_the_one_before() -> None:
    before = MetadataImage().with_topics(topic("t"))
    after = before.without_topic("t").with_broker(broker(1))

    assert (list(before.topics), list(before.brokers)) == (["t"], [])
    assert (list(after.topics), list(after.names), list(after.brokers)) == ([], [], [1])


def test_a_topic_that_took_the_name_of_another_is_the_only_one() -> None:
    first, second = topic("t"), topic("t")
    image = MetadataImage().with_topics(first).with_topics(second)

    assert image.topic_of_id(first.topic_id) is None
    assert image.topic_of_id(second.topic_id) is second


def test_coordinators_topics_are_internal() -> None:
    assert topic(GROUP_METADATA_TOPIC).is_internal
    assert not topic("t").is_internal


def test_one_partition_changed() -> None:
    known = topic("t", 3)
    changed = new_partition(1, (2, 3), (3,))

    assert known.with_partition(changed).partitions == (known.partitions[0], changed, known.partitions[2])
