"""Random lives of a cluster: topics come, grow and go, brokers end and return, leaders move, and all of it restarts."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster, CoordinatorType
from spark_kafka_sink.broker.cluster.metadata_image import NO_LEADER, MetadataImage, PartitionState
from tests.broker.cluster.clusters import broker

pytestmark = pytest.mark.slow

NODES = 3
NAMES = ("a", "b", "c")


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.config = BrokerConfig(data_dir=Path(self.folder.name), offsets_topic_num_partitions=2)
        self.epochs: dict[tuple[uuid.UUID, int], PartitionState] = {}
        self.ids: dict[uuid.UUID, str] = {}
        self.producer_ids: list[int] = []

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster(self.config)
        self.told = self.cluster.image
        self.cluster.on_change(self._changed)
        self.cluster.brokers_up(*map(broker, range(1, NODES + 1)))

    def _changed(self, before: MetadataImage, after: MetadataImage) -> None:
        assert before is self.told
        self.told = after

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    # What happens

    @precondition(lambda self: len(self.image.topics) < len(NAMES) and self.image.up())
    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in NAMES if name not in self.image.topics]))
        replicas = data.draw(st.integers(1, len(self.image.up())))
        partitions = data.draw(st.integers(1, 4))
        self.cluster.create_topic(name, partitions, replicas, configs={"retention.ms": str(partitions)})

    @precondition(lambda self: self.image.topics)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.cluster.delete_topic(data.draw(st.sampled_from(sorted(self.image.topics))))

    @precondition(lambda self: self.image.up() and any(len(topic.partitions) < 6 for topic in self.image.topics.values()))
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        topics = [topic for topic in self.image.topics.values() if len(topic.partitions) < 6]
        topic = data.draw(st.sampled_from(topics))
        if len(topic.partitions[0].replicas) <= len(self.image.up()):
            self.cluster.create_partitions(topic.name, len(topic.partitions) + data.draw(st.integers(1, 3)))

    @rule(node=st.integers(1, NODES))
    def end(self, node: int) -> None:
        self.cluster.broker_down(node)

    @rule(node=st.integers(1, NODES))
    def come_back(self, node: int) -> None:
        self.cluster.brokers_up(broker(node))

    @precondition(lambda self: self.image.topics and self.image.up())
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        topic, partition = data.draw(st.sampled_from(list(self.image.partitions())))
        self.cluster.move_leader(topic.name, partition.index, data.draw(st.sampled_from(self.image.up())))

    @precondition(lambda self: self.image.up())
    @rule(group=st.text(max_size=3))
    def find_a_coordinator(self, group: str) -> None:
        found = self.cluster.coordinator(CoordinatorType.GROUP, group)

        assert found in (*self.image.up(), NO_LEADER)
        assert self.cluster.coordinator(CoordinatorType.GROUP, group) == found

    @rule()
    def take_a_producer_id(self) -> None:
        self.producer_ids.append(self.cluster.next_producer_id())

    @rule()
    def restart(self) -> None:
        before = self.cluster
        self.cluster = Cluster(self.config)
        self.told = self.cluster.image
        self.cluster.on_change(self._changed)

        assert self.cluster.cluster_id == before.cluster_id
        assert {name: (topic.topic_id, topic.configs) for name, topic in self.image.topics.items()} == {
            name: (topic.topic_id, topic.configs) for name, topic in before.image.topics.items()
        }
        assert [_kept(partition) for _, partition in self.image.partitions()] == [
            _kept(partition) for _, partition in before.image.partitions()
        ]

    # What holds at any time

    @invariant()
    def replicas_in_sync_are_those_that_are_up(self) -> None:
        up = self.image.up()
        for _, partition in self.image.partitions():
            assert partition.isr == tuple(node for node in partition.replicas if node in up)
            assert len(set(partition.replicas)) == len(partition.replicas) > 0

    @invariant()
    def there_is_a_leader_exactly_where_one_can_be_and_it_is_in_sync(self) -> None:
        for _, partition in self.image.partitions():
            assert partition.leader in (partition.isr or (NO_LEADER,))

    @invariant()
    def epochs_only_grow_and_do_with_each_other_leader(self) -> None:
        for topic, partition in self.image.partitions():
            key = topic.topic_id, partition.index
            last = self.epochs.get(key, partition)
            assert partition.leader_epoch >= last.leader_epoch
            # A restart makes nobody lead; it is no epoch, as nobody could have asked meanwhile.
            assert partition.leader_epoch > last.leader_epoch or partition.leader in (last.leader, NO_LEADER)
            self.epochs[key] = partition

    @invariant()
    def an_id_is_of_one_topic_for_ever(self) -> None:
        assert self.image.names == {topic.topic_id: name for name, topic in self.image.topics.items()}
        for topic_id, name in self.image.names.items():
            assert self.ids.setdefault(topic_id, name) == name

    @invariant()
    def partitions_are_numbered_from_0(self) -> None:
        for topic in self.image.topics.values():
            assert [partition.index for partition in topic.partitions] == list(range(len(topic.partitions)))

    @invariant()
    def who_listens_has_the_newest_image(self) -> None:
        assert self.told is self.image

    @invariant()
    def no_producer_id_was_given_twice(self) -> None:
        assert len(set(self.producer_ids)) == len(self.producer_ids)


def _kept(partition: PartitionState) -> tuple[object, ...]:
    """What a restart keeps of it."""
    return partition.index, partition.replicas, partition.leader_epoch


Lives.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLives = Lives.TestCase
