"""What an embedded broker says and does that was told to be an older Kafka is what that Kafka says and does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.apis.topics import CreatableTopic, CreateTopicsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import WITH_ZOOKEEPER, only_versions
from tests.kafka.versions import DEFAULT, OLDEST

every_version = only_versions("3.7", "3.9")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


@pytest.fixture
def embedded(kafka_version: str) -> Iterator[EmbeddedBroker]:
    """As many brokers as `versioned_kafka` has."""
    with EmbeddedBroker(2 if kafka_version in WITH_ZOOKEEPER else 1, like=kafka_version) as broker:
        yield broker


@pytest.fixture
def both(versioned_kafka: KafkaCluster, embedded: EmbeddedBroker, topic: str, closing: ExitStack) -> list[Client]:
    """A connection to the first broker of each; both clusters have the topic, whose partitions that broker leads."""
    embedded.create_topic(topic, 2)
    for partition in range(2):
        embedded.move_leader(topic, partition, 1)
    return [closing.enter_context(connected(address)) for address in (versioned_kafka.address(1), embedded.address(1))]


@pytest.fixture
def topic(versioned_kafka: KafkaCluster, request: pytest.FixtureRequest) -> str:
    return versioned_kafka.create_topic(f"embedded-{request.node.originalname}", 2)


def connected(address: str) -> Client:
    host, port = address.rsplit(":", 1)
    return Client(int(port), host)


@only_versions(OLDEST, "3.7", "3.9", DEFAULT)
def test_versions_of_apis_are_the_same(both: list[Client]) -> None:
    kafka, ours = ({each.api_key: each for each in client.api_versions(0).api_keys} for client in both)
    assert {key: each.max_version for key, each in ours.items()} == {key: kafka[key].max_version for key in ours}
    # The oldest versions, which Kafka 4 has dropped, are not spoken here.
    assert all(kafka[key].min_version <= each.min_version for key, each in ours.items())


@only_versions(OLDEST)
def test_an_unknown_version_of_api_versions_is_refused_alike(both: list[Client]) -> None:
    kafka, ours = ((answer.error_code, list(answer.api_keys)) for answer in (client.api_versions(3) for client in both))
    assert ours == kafka == (ErrorCode.UNSUPPORTED_VERSION, [])


@only_versions(OLDEST)
def test_a_new_topic_needs_its_counts_alike(versioned_kafka: KafkaCluster, embedded: EmbeddedBroker, closing: ExitStack) -> None:
    def codes(cluster: KafkaCluster | EmbeddedBroker) -> list[int]:
        clients = [closing.enter_context(connected(cluster.address(node))) for node in (1, 2)]
        request = CreateTopicsRequest(
            [CreatableTopic("no-partitions", -1, 1), CreatableTopic("no-replicas", 1, -1), CreatableTopic("both", 1, 1)],
            validate_only=True,
        )
        answers: list[Any] = [client.ask(ApiKey.CREATE_TOPICS, 3, request) for client in clients]
        found = [{topic.name: topic.error_code for topic in answer.topics} for answer in answers]
        (by_name,) = (each for each in found if set(each.values()) != {ErrorCode.NOT_CONTROLLER})
        return [by_name[name] for name in ("no-partitions", "no-replicas", "both")]

    refused = [ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
    assert codes(embedded) == codes(versioned_kafka) == refused


@every_version
def test_features_are_the_same(both: list[Client]) -> None:
    def features(client: Client) -> Any:
        answer = client.api_versions()
        return list(answer.supported_features), list(answer.finalized_features), answer.finalized_features_epoch < 0

    kafka, ours = map(features, both)
    assert ours == kafka


@every_version
def test_topics_have_ids(both: list[Client], topic: str) -> None:
    def seen(client: Client) -> Any:
        described: Any = client.ask(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name=topic)]))
        asked = FetchTopic(topic, ZERO_UUID, [FetchPartition(0, fetch_offset=0, partition_max_bytes=1)])
        fetched: Any = client.ask(ApiKey.FETCH, 13, FetchRequest(max_wait_ms=0, topics=[asked]))
        return described.topics[0].topic_id == ZERO_UUID, fetched.responses[0].partitions[0].error_code

    kafka, ours = map(seen, both)
    assert ours == kafka == (False, ErrorCode.UNKNOWN_TOPIC_ID)


@every_version  # with one broker, which coordinates and leads everything
def test_a_late_record_is_refused_alike(both: list[Client], topic: str) -> None:
    def seen(client: Client) -> Any:
        txn = Transactor(client, topic, topic)
        txn.find()
        who = txn.settled(lambda: txn.init(version=4)).producer
        unknown = txn.produce(who, version=9)
        codes = txn.settled_codes(lambda: txn.add(who, 0))
        first = txn.produce(who, version=9)
        aborted = txn.abort(who, version=3).code
        state = txn.settle()
        return unknown, codes, first, aborted, state, txn.produce(who, sequence=1, version=9)

    kafka, ours = map(seen, both)
    assert ours == kafka


@only_versions(OLDEST)
def test_only_the_controller_makes_topics(versioned_kafka: KafkaCluster, embedded: EmbeddedBroker, closing: ExitStack) -> None:
    def codes(cluster: KafkaCluster | EmbeddedBroker) -> dict[bool, int]:
        """By whether it is the controller."""
        clients = {node: closing.enter_context(connected(cluster.address(node))) for node in (1, 2)}
        controller = -1
        while controller == -1:  # a broker that has just started may not know it yet
            metadata: Any = clients[1].ask(ApiKey.METADATA, 7, MetadataRequest(()))
            controller = metadata.controller_id
        found = {}
        for node, client in clients.items():
            request = CreateTopicsRequest([CreatableTopic(f"made-at-{node}", 1, 1)])
            answer: Any = client.ask(ApiKey.CREATE_TOPICS, 3, request)
            found[node == controller] = answer.topics[0].error_code
        return found

    assert codes(embedded) == codes(versioned_kafka) == {True: ErrorCode.NONE, False: ErrorCode.NOT_CONTROLLER}
