"""The topic of the commit log: made, checked, and refused with what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import AuthorizationError, KafkaSinkError, OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once import commit_log_topic, transaction_client
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_log_topic import CommitLogDeletedError, leader_of
from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.commit_log_options import CommitLogSettings
from spark_kafka_sink.protocol.apis.init_producer_id import INIT_PRODUCER_ID
from tests.exactly_once.logged import a_record, query
from tests.exactly_once.opened import client_of, new_id, soon
from tests.kafka.acls import KafkaWithAcls
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import NewTopic, embedded_in_make_test
from tests.kafka.kafka import Kafka
from tests.tiers import whole_but


@pytest.fixture(params=whole_but([1, 2], [2], "a topic is made alike"), ids=["tv1", "tv2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


def test_the_topic_is_compacted_in_small_segments(log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka) -> None:
    log.ensure(soon())
    resource = ConfigResource(ConfigResource.Type.TOPIC, settings.topic)
    configs = transaction_kafka.admin.describe_configs([resource])[resource].result()

    assert configs["cleanup.policy"].value == "compact"
    assert configs["segment.bytes"].value == str(1024 * 1024)
    assert len(transaction_kafka.metadata(settings.topic).topics[settings.topic].partitions) == 3


def test_two_may_make_the_topic_at_once(transaction_kafka: Kafka, settings: CommitLogSettings) -> None:
    def ensure(_: int) -> CommitRecord | None:
        with client_of(transaction_kafka) as client:
            return CommitLog(client, settings).claim(query(), soon()).last

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ensure, range(4))) == [None] * 4


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_compacted_cannot_be_the_log(
    client: ClusterClient, transaction_kafka: Kafka, new_topic: NewTopic, policy: str
) -> None:
    topic = new_topic(2, on=transaction_kafka, config={"cleanup.policy": policy})  # of 8: that is not what is to be mended
    with pytest.raises(OptionError, match=rf"option commit\.log\.topic: topic {topic} has cleanup\.policy={policy},? .*set its"):
        CommitLog(client, CommitLogSettings(topic)).claim(query(), soon())


def test_a_topic_of_fewer_partitions_cannot_be_the_log(
    client: ClusterClient, transaction_kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(2, on=transaction_kafka, config={"cleanup.policy": "compact"})
    with pytest.raises(OptionError, match=r"option commit\.log\.partitions: topic .* has 2 partitions, not 8: set it to 2"):
        CommitLog(client, CommitLogSettings(topic)).ensure(soon())


def test_a_partition_that_is_gone_is_a_log_that_was_made_again(
    client: ClusterClient, transaction_kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that create topics for any client give them one partition, unless they are told another number."""
    monkeypatch.setattr(commit_log_topic, "DELETED_AFTER_S", 1.0)
    topic = new_topic(1, on=transaction_kafka)
    with pytest.raises(CommitLogDeletedError, match="was deleted and made again"):
        leader_of(client, topic, 5, soon(10))


def test_replication_that_cannot_be_had_is_an_error(client: ClusterClient, settings: CommitLogSettings) -> None:
    with pytest.raises(OptionError, match=r"option commit\.log\.replication\.factor: .* cannot be created with 5 replicas"):
        CommitLog(client, replace(settings, replication_factor=5)).ensure(soon())


def test_a_name_that_no_topic_can_have_is_an_error(client: ClusterClient) -> None:
    with pytest.raises(OptionError, match=r"option commit\.log\.topic: 'a b' is not a valid topic name"):
        CommitLog(client, CommitLogSettings("a b")).ensure(soon())


def test_a_timeout_over_the_brokers_limit_is_an_error(client: ClusterClient, settings: CommitLogSettings) -> None:
    with pytest.raises(OptionError, match=r"the brokers' transaction\.max\.timeout\.ms is below .* raise it"):
        CommitLog(client, replace(settings, transaction_timeout_ms=2**31 - 1)).claim(query(), soon())


def test_brokers_without_transactions_are_an_error(
    client: ClusterClient, settings: CommitLogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To this client these brokers are as those of before Kafka 0.11, or a stand-in that lacks it.
    monkeypatch.setattr(transaction_client, "INITIALISING", INIT_PRODUCER_ID.limited_to(90, 90))
    with pytest.raises(UnsupportedVersionError, match=r"exactly-once requires Kafka 3\.8 or newer: .*INIT_PRODUCER_ID"):
        CommitLog(client, settings).claim(query(), soon())


@embedded_in_make_test("seconds of Java; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_a_log_that_is_made_while_a_broker_is_down_has_a_replica_there_too(kafka3: Brokers) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    with client_of(kafka3) as client:
        # Tasks have begun transactions before anybody commits.
        TransactionClient(client).init_producer_id(query().commit_log, 10_000, soon())
        kafka3.kill(2)
        CommitLog(client, settings).ensure(soon())
    replicas = kafka3.metadata(settings.topic).topics[settings.topic].partitions[0].replicas
    assert sorted(replicas) == [1, 2, 3]


DENIED = [
    (AclOperation.CREATE, "CreateTopics failed with TOPIC_AUTHORIZATION_FAILED; User:ANONYMOUS is not authorized for Create on"),
    (
        AclOperation.DESCRIBE_CONFIGS,
        "DescribeConfigs failed with TOPIC_AUTHORIZATION_FAILED; .* not authorized for DescribeConfigs on",
    ),
    (AclOperation.READ, "Fetch of .*: TOPIC_AUTHORIZATION_FAILED; .* not authorized for Read on"),
    (AclOperation.WRITE, "TOPIC_AUTHORIZATION_FAILED; .* not authorized for Write on"),
    (AclOperation.DESCRIBE, "Metadata failed with TOPIC_AUTHORIZATION_FAILED; .* not authorized for Describe on"),
]


@pytest.mark.parametrize(("operation", "match"), DENIED, ids=[operation.name for operation, _ in DENIED])
def test_what_is_not_allowed_names_the_acl(kafka_with_acls: KafkaWithAcls, operation: AclOperation, match: str) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    ids = query()
    with client_of(kafka_with_acls) as client:
        if operation is AclOperation.CREATE:  # who may create topics anywhere may also create this one
            kafka_with_acls.deny(ResourceType.BROKER, "kafka-cluster", operation)
        else:
            CommitLog(client, settings).ensure(soon())
        kafka_with_acls.deny(ResourceType.TOPIC, settings.topic, operation)
        with pytest.raises(KafkaSinkError, match=match) as caught:
            CommitLog(client, settings).claim(ids, soon()).write(a_record(ids, 0), soon())

    assert isinstance(caught.value, AuthorizationError)
    grants = "--operation Create --operation DescribeConfigs --operation Read --operation Write"
    assert f"{grants} --topic {settings.topic}`" in caught.value.message  # all that it needs, in one line
