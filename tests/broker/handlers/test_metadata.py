"""Brokers, topics and leaders as a client sees them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.handlers.find_coordinator import handle_find_coordinator
from spark_kafka_sink.broker.handlers.metadata import handle_metadata
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.rig import Rig


def metadata(rig: Rig, *topics: MetadataRequestTopic, version: int | None = None, every: bool = False, **fields: Any) -> Any:
    body = MetadataRequest(topics=None if every else topics, **fields)
    return rig.ask(handle_metadata, body, ApiKey.METADATA, version).answer


def test_all_topics_with_their_leaders_and_the_brokers_that_run() -> None:
    with Rig(brokers=3) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1, 3]), (1, [3, 2])])
        rig.cluster.broker_down(2)
        rig.cluster.broker_down(3)

        answer = metadata(rig, every=True)

        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (1, "127.0.0.1", 9001),
        ]
        (topic,) = answer.topics
        assert [(p.leader_id, p.leader_epoch, p.error_code) for p in topic.partitions] == [
            (1, 0, ErrorCode.NONE),
            (-1, 1, ErrorCode.LEADER_NOT_AVAILABLE),
        ]
        assert [tuple(p.offline_replicas) for p in topic.partitions] == [(3,), (3, 2)]
        assert answer.cluster_id == rig.cluster.cluster_id


def test_no_topics_are_asked_for_with_an_empty_list() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        assert metadata(rig).topics == ()


def test_a_topic_is_made_when_it_is_asked_for_where_client_and_broker_allow_it() -> None:
    with Rig(num_partitions=3) as rig, Rig(auto_create_topics_enable=False) as strict:
        asked = MetadataRequestTopic(name="new")

        refused = metadata(rig, asked, allow_auto_topic_creation=False).topics[0]
        made = metadata(rig, asked).topics[0]
        never = metadata(strict, asked).topics[0]

        assert (refused.error_code, never.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) * 2
        assert (made.error_code, len(made.partitions)) == (ErrorCode.NONE, 3)
        assert list(rig.cluster.image.topics) == ["new"]


@pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250])
def test_an_illegal_name_is_not_made(name: str) -> None:
    with Rig() as rig:
        assert metadata(rig, MetadataRequestTopic(name=name)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert not rig.cluster.image.topics


def test_a_topic_is_found_by_its_id() -> None:
    with Rig() as rig:
        topic = rig.cluster.create_topic("t")

        known, unknown = metadata(
            rig, MetadataRequestTopic(topic_id=topic.topic_id), MetadataRequestTopic(topic_id=uuid.uuid4())
        ).topics

        assert (known.name, known.error_code) == ("t", ErrorCode.NONE)
        assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_ids_are_refused_in_versions_that_have_the_field_only() -> None:
    with Rig() as rig, pytest.raises(ApiException, match="INVALID_REQUEST"):
        metadata(rig, MetadataRequestTopic(topic_id=uuid.uuid4()), version=10)


def test_what_a_client_may_do_is_told_when_it_asks() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        asked = MetadataRequestTopic(name="t")

        told = metadata(
            rig, asked, version=8, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        not_asked = metadata(rig, asked, version=8)

        assert (told.topics[0].topic_authorized_operations, told.cluster_authorized_operations) == (
            0b110111111000,
            0b1111110100000,
        )
        assert not_asked.topics[0].topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", [3, 6])
def test_a_coordinator_is_the_leader_of_its_key_s_partition(version: int) -> None:
    with Rig(brokers=3) as rig:
        body = FindCoordinatorRequest("g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])

        answer = rig.ask(handle_find_coordinator, body, ApiKey.FIND_COORDINATOR, version).answer

        found = answer if version < 4 else answer.coordinators[0]
        # "g".hashCode() is 103; partition 3 of 10
        leader = rig.cluster.image.partition("__consumer_offsets", 3)
        assert leader is not None
        assert (found.error_code, found.node_id, found.port) == (0, leader.leader, 9000 + leader.leader)


def test_an_unknown_kind_of_coordinator_is_refused_by_its_key() -> None:
    with Rig() as rig:
        body = FindCoordinatorRequest(key_type=2, coordinator_keys=["g"])
        (found,) = rig.ask(handle_find_coordinator, body, ApiKey.FIND_COORDINATOR).answer.coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
