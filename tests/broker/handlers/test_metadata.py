"""How clients find their way: API versions, brokers, topics and leaders, coordinators."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.common import Handler
from spark_kafka_sink.broker.handlers.metadata import handle_find_coordinator, handle_metadata
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.request import Session
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.servers import services
from tests.broker.requests import Responses, request
from tests.broker.rig import Rig
from tests.every import every

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.HEARTBEAT: lambda _services, _request: None,
    ApiKey.PRODUCE: lambda _services, _request: None,
}


# ApiVersions


def ask(
    version: int,
    name: str = "test",
    software_version: str = "1.0",
    *,
    session: Session | None = None,
    **config: Any,
) -> ApiVersionsResponse:
    responses = Responses()
    body = ApiVersionsRequest(name, software_version)
    asked = request(body, ApiKey.API_VERSIONS, version, responses=responses, session=session)
    KafkaApis(services(**config), handlers=HANDLERS).handle(asked)
    answer = responses.answer()
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def ranges(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


@every("version", range(5))
def test_the_apis_are_those_that_have_a_handler(version: int) -> None:
    heartbeat, produce = ALL_APIS[ApiKey.HEARTBEAT], ALL_APIS[ApiKey.PRODUCE]

    assert ranges(ask(version)) == {
        # Said, as Kafka says it, for the sake of old clients; v3 is the first that is served.
        ApiKey.PRODUCE: (0, produce.max_version),
        ApiKey.HEARTBEAT: (heartbeat.min_version, heartbeat.max_version),
        ApiKey.API_VERSIONS: (0, 4),
    }


@every(
    "name, software_version",
    [("", "1"), ("test", ""), ("-test", "1"), ("test", "1."), ("te st", "1"), ("t\n", "1"), ("é", "1")],
)
def test_a_software_name_that_fits_no_metric_is_an_invalid_request(name: str, software_version: str) -> None:
    answer = ask(3, name, software_version)

    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, ())


def test_the_session_knows_the_clients_software() -> None:
    session = Session("127.0.0.1", 1)
    ask(3, "librdkafka", "2.8.0", session=session)

    assert (session.client_software_name, session.client_software_version) == ("librdkafka", "2.8.0")


# Metadata and FindCoordinator


def metadata(rig: Rig, *topics: MetadataRequestTopic, every: bool = False, **fields: Any) -> Any:
    body = MetadataRequest(topics=None if every else topics, **fields)
    return rig.ask(handle_metadata, body, ApiKey.METADATA).answer


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


def test_a_topic_is_made_when_it_is_asked_for_where_client_and_broker_allow_it() -> None:
    with Rig(num_partitions=3) as rig, Rig(auto_create_topics_enable=False) as strict:
        asked = MetadataRequestTopic(name="new")

        refused = metadata(rig, asked, allow_auto_topic_creation=False).topics[0]
        made = metadata(rig, asked).topics[0]
        never = metadata(strict, asked).topics[0]

        assert (refused.error_code, never.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) * 2
        assert (made.error_code, len(made.partitions)) == (ErrorCode.NONE, 3)
        assert list(rig.cluster.image.topics) == ["new"]


def test_a_topic_is_found_by_its_id() -> None:
    with Rig() as rig:
        topic = rig.cluster.create_topic("t")

        known, unknown = metadata(
            rig, MetadataRequestTopic(topic_id=topic.topic_id), MetadataRequestTopic(topic_id=uuid.uuid4())
        ).topics

        assert (known.name, known.error_code) == ("t", ErrorCode.NONE)
        assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


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
