"""The topic of the commit log: made, checked, and refused with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import (
    BrokerError,
    DeadlineError,
    OptionError,
    UnsupportedVersionError,
)
from spark_kafka_sink.exactly_once import commit_log_topic, transaction_client
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_log_topic import CommitLogDeletedError, leader_of
from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.exactly_once.opened import client_of, new_id, query, soon
from tests.kafka.brokers import Brokers
from tests.kafka.embedded import EmbeddedKafka
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


# The topic of the commit log on brokers that do not create it as they are asked to


@pytest.fixture(scope="module")
def _brokers() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, in_memory=True) as made:
        yield made


@pytest.fixture
def brokers(_brokers: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    yield _brokers
    _brokers.broker.faults.clear()


def test_with_zookeeper_only_the_controller_is_asked_to_make_the_topic(brokers: EmbeddedKafka) -> None:
    def change(_: Message, answer: Message) -> Message:
        assert isinstance(answer, MetadataResponse)
        answer.controller_id = 3
        return answer

    faults = brokers.broker.faults
    faults.alter(ApiKey.METADATA, change, times=None)
    refused = [faults.fail(ApiKey.CREATE_TOPICS, ErrorCode.NOT_CONTROLLER, times=None, broker=each) for each in (1, 2)]
    for _ in range(6):
        with client_of(brokers) as client:
            CommitLog(client, CommitLogSettings(new_id("commits"), partitions=1)).ensure(soon(5))
    assert [fault.hits for fault in refused] == [0, 0]


def test_a_topic_that_no_broker_makes_names_them_and_what_they_said(brokers: EmbeddedKafka) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    with (
        brokers.broker.faults.fail(ApiKey.CREATE_TOPICS, ErrorCode.NOT_CONTROLLER, times=None),
        client_of(brokers) as client,
        pytest.raises(DeadlineError) as caught,
    ):
        TransactionClient(client).list_open("none", soon())  # so that there are connections to all brokers
        CommitLog(client, settings).ensure(soon(2.5))
    assert settings.topic in caught.value.message
    for broker_id in brokers.broker_ids:
        assert f"broker {broker_id} ({brokers.address(broker_id)}): NOT_CONTROLLER" in caught.value.message


OF_CONFIGS = [ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("code", OF_CONFIGS)
def test_where_configs_are_refused_the_topic_is_made_with_its_cleanup_policy_alone(
    brokers: EmbeddedKafka, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    """As by a service that lets its customers set some configs only."""
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    faults = brokers.broker.faults
    with client_of(brokers) as client, faults.fail(ApiKey.CREATE_TOPICS, code, message="segment.bytes cannot be set"):
        CommitLog(client, settings).ensure(soon(5))

    resource = ConfigResource(ConfigResource.Type.TOPIC, settings.topic)
    configs = brokers.admin.describe_configs([resource])[resource].result()
    own = {name: each.value for name, each in configs.items() if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    assert own == {"cleanup.policy": "compact"}
    (said,) = [record.getMessage() for record in caplog.records if settings.topic in record.getMessage()]
    assert f"{code.name}: segment.bytes cannot be set" in said
    for refused in ("segment.bytes=1048576", "min.insync.replicas=2", "unclean.leader.election.enable=false"):
        assert refused in said


@pytest.mark.parametrize("code", OF_CONFIGS)
def test_a_topic_that_is_refused_in_any_case_can_be_made_by_hand(brokers: EmbeddedKafka, code: ErrorCode) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=5)
    with (
        brokers.broker.faults.fail(ApiKey.CREATE_TOPICS, code, message="the portal makes topics", times=None) as refused,
        client_of(brokers) as client,
        pytest.raises(BrokerError, match=f"CreateTopics failed with {code.name}: the portal makes topics") as caught,
    ):
        CommitLog(client, settings).ensure(soon(5))
    assert (
        f"`kafka-topics.sh --bootstrap-server {brokers.bootstrap_servers} --create --topic {settings.topic} --partitions 5"
        " --replication-factor 3 --config cleanup.policy=compact --config min.insync.replicas=2`" in caught.value.message
    )
    assert refused.hits == 2
