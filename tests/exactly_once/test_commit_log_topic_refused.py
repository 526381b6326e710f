"""The topic of the commit log on brokers that do not create it as they are asked to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource

from spark_kafka_sink.errors import BrokerError, DeadlineError
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.options.commit_log_options import CommitLogSettings
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.exactly_once.opened import client_of, new_id, soon
from tests.kafka.embedded import EmbeddedKafka

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, in_memory=True) as made:
        yield made


@pytest.fixture(autouse=True)
def _healed(brokers: EmbeddedKafka) -> Iterator[None]:
    yield
    brokers.broker.faults.clear()


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
        CommitLog(client, settings).ensure(soon(1.5))
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
