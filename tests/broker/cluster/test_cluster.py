"""Every change of topics, leaders, configs and producer ids, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster import cluster_store
from spark_kafka_sink.broker.cluster.cluster import Cluster, CoordinatorType
from spark_kafka_sink.broker.cluster.cluster_store import StoredCluster
from spark_kafka_sink.broker.cluster.metadata_image import (
    GROUP_METADATA_TOPIC,
    MetadataImage,
    partition_for,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.cluster.clusters import broker, cluster


def refused(what: Callable[[], object]) -> tuple[ErrorCode, str | None]:
    with pytest.raises(ApiException) as error:
        what()
    return error.value.code, error.value.message


def leaders(known: Cluster, topic: str = "t") -> list[tuple[int, int]]:
    """Leader and epoch of each partition."""
    return [(partition.leader, partition.leader_epoch) for partition in known.image.topics[topic].partitions]


class TestCreateTopic:
    def test_a_replica_that_is_down_is_not_in_sync_and_does_not_lead(self) -> None:
        known = cluster(2)
        known.broker_down(1)
        (partition,) = known.create_topic("t", assignments=[(0, [1, 2])]).partitions

        assert (partition.leader, partition.isr, partition.replicas) == (2, (2,), (1, 2))


class TestLeaders:
    def test_what_a_broker_led_goes_to_the_next_replica_that_is_up_with_a_new_epoch(self) -> None:
        known = cluster(3)
        known.create_topic("t", assignments=[(0, [1, 2, 3])])
        known.broker_down(2)
        known.broker_down(1)

        assert leaders(known) == [(3, 1)]
        assert known.image.topics["t"].partitions[0].isr == (3,)

    def test_one_that_comes_back_leads_what_nobody_leads(self) -> None:
        known = cluster(2)
        known.create_topic("t", assignments=[(0, [1]), (1, [1])])
        known.create_topic("other", assignments=[(0, [1, 2])])
        known.broker_down(1)
        known.brokers_up(broker(1))

        assert leaders(known) == [(1, 2), (1, 2)]
        assert leaders(known, "other") == [(2, 1)]
        assert known.image.topics["other"].partitions[0].isr == (1, 2)

    def test_a_move_to_a_broker_without_a_replica_makes_it_one(self) -> None:
        known = cluster(2)
        known.create_topic("t", assignments=[(0, [1])])
        known.move_leader("t", 0, 2)

        assert (leaders(known), known.image.topics["t"].partitions[0].replicas) == ([(2, 1)], (1, 2))

    @pytest.mark.parametrize(("partition", "leader"), [(0, 2), (0, 9), (1, 1), (-1, 1)])
    def test_no_move_to_who_is_down_and_of_what_is_not_there(self, partition: int, leader: int) -> None:
        known = cluster(2)
        known.create_topic("t", 1)
        known.broker_down(2)

        assert refused(lambda: known.move_leader("t", partition, leader))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_first_that_runs_is_the_controller(self) -> None:
        known = cluster(3)
        known.broker_down(1)
        assert known.controller_id() == 2
        known.broker_down(2)
        known.broker_down(3)
        assert known.controller_id() == -1


class TestCoordinators:
    def test_who_leads_the_partition_of_a_group_coordinates_it(self) -> None:
        known = cluster(3)
        node = known.coordinator(CoordinatorType.GROUP, "some group")
        topic = known.image.topics[GROUP_METADATA_TOPIC]

        assert node == topic.partitions[partition_for("some group", len(topic.partitions))].leader
        assert topic.configs["cleanup.policy"] == "compact"
        assert [len(partition.replicas) for partition in topic.partitions] == [3] * 10


class TestListeners:
    def test_a_change_that_one_of_them_refuses_has_not_happened_not_even_after_a_restart(self, tmp_path: Path) -> None:
        known = cluster(1, tmp_path)

        def refuse(before: MetadataImage, after: MetadataImage) -> None:
            raise OSError("disk full")

        known.on_change(refuse)
        with pytest.raises(OSError, match="disk full"):
            known.create_topic("t")

        assert not known.image.topics
        assert not cluster(1, tmp_path).image.topics


def test_a_broker_is_down_even_where_that_cannot_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = cluster(2, tmp_path)
    known.create_topic("t", 2, 2)
    monkeypatch.setattr(cluster_store, "write", full)

    known.broker_down(1)

    assert known.image.up() == (2,)
    assert [leader for leader, _ in leaders(known)] == [2, 2]


def full(folder: Path, stored: StoredCluster) -> None:
    raise OSError("disk full")


class TestProducerIds:
    def test_none_is_given_twice_even_by_one_that_was_killed(self, tmp_path: Path) -> None:
        given = []
        for _ in range(3):
            known = cluster(1, tmp_path)  # the one before was never stopped
            given += [known.next_producer_id() for _ in range(1500)]

        assert len(set(given)) == len(given)
        assert min(given) == 0

    def test_none_is_given_that_could_not_be_noted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        known = cluster(1, tmp_path)
        with monkeypatch.context() as disk:
            disk.setattr(cluster_store, "write", full)
            for _ in range(2):
                assert refused(known.next_producer_id)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE

        assert known.next_producer_id() == 0
        assert cluster(1, tmp_path).next_producer_id() == 1000


class TestRestart:
    def test_everything_is_there_again_and_nobody_leads_until_brokers_come(self, tmp_path: Path) -> None:
        known = cluster(2, tmp_path)
        topic = known.create_topic("t", 2, 2, configs={"retention.ms": "1"})
        again = cluster(0, tmp_path)
        found = again.image.topics["t"]

        assert again.cluster_id == known.cluster_id
        assert (found.topic_id, found.configs) == (topic.topic_id, topic.configs)
        assert {partition.leader for partition in found.partitions} == {-1}
