"""Every config, its value, where that comes from and what may be known of it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.broker.handlers.describe_configs import handle_describe_configs
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.rig import Rig

TOPIC, BROKER = 2, 4


def result(rig: Rig, type: int, name: str, keys: list[str] | None = None, *, version: int = 4, **fields: Any) -> Any:
    body = DescribeConfigsRequest([DescribeConfigsResource(type, name, keys)], **fields)
    (found,) = rig.ask(handle_describe_configs, body, ApiKey.DESCRIBE_CONFIGS, version).answer.results
    return found


def configs(rig: Rig, type: int, name: str, keys: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    found = result(rig, type, name, keys, **fields)
    assert (found.error_code, found.error_message) == (ErrorCode.NONE, "")
    return {config.name: config for config in found.configs}


def test_all_of_a_topic() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"cleanup.policy": "compact , delete"})
        found = configs(rig, TOPIC, "t")

        assert set(found) == {key.name for key in TOPIC_CONFIGS.values() if not key.is_internal}
        assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("compact,delete", 1)
        assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("604800000", 5)
        assert not any(config.read_only or config.is_sensitive or config.synonyms for config in found.values())
        assert {config.documentation for config in found.values()} == {None}


def test_those_that_are_asked_for() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")

        assert set(configs(rig, TOPIC, "t", ["retention.ms", "none", "flush.ms"])) == {"retention.ms", "flush.ms"}
        assert len(configs(rig, TOPIC, "t", [])) == len(configs(rig, TOPIC, "t"))


def test_types_and_words_from_version_3_on() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        names = [
            "preallocate",
            "compression.type",
            "segment.bytes",
            "retention.ms",
            "min.cleanable.dirty.ratio",
            "cleanup.policy",
        ]
        found = configs(rig, TOPIC, "t", names, include_documentation=True)
        older = configs(rig, TOPIC, "t", names, version=2)

        assert [found[name].config_type for name in names] == [1, 2, 3, 5, 6, 7]
        assert found["retention.ms"].documentation == TOPIC_CONFIGS["retention.ms"].doc
        assert {(config.config_type, config.documentation) for config in older.values()} == {(0, None)}


def test_every_place_that_a_value_could_come_from() -> None:
    with Rig(topic_defaults={"retention.ms": "4"}) as rig:
        rig.cluster.create_topic("t", configs={"retention.ms": "1"})
        rig.cluster.alter_broker_configs(-1, lambda _: {"log.retention.ms": "3"})
        rig.cluster.alter_broker_configs(1, lambda _: {"log.retention.ms": "2"})
        found = configs(rig, TOPIC, "t", ["retention.ms"], include_synonyms=True)["retention.ms"]

        assert [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms] == [
            ("retention.ms", "1", 1),
            ("log.retention.ms", "2", 2),
            ("log.retention.ms", "3", 3),
            ("log.retention.ms", "4", 4),
            ("log.retention.hours", "168", 5),
        ]


def test_an_internal_config_shows_where_it_is_set() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"internal.segment.bytes": "99"})

        assert configs(rig, TOPIC, "t")["internal.segment.bytes"].value == "99"


@pytest.mark.parametrize(
    ("type", "name", "code", "words"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (BROKER, "9" * 5000, ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {'9' * 5000}"),
        (32, "group", ErrorCode.INVALID_REQUEST, "Unsupported resource type: GROUP"),
    ],
)
def test_what_has_no_configs_here(type: int, name: str, code: ErrorCode, words: str) -> None:
    with Rig() as rig:
        found = result(rig, type, name)

        assert (found.error_code, found.error_message, found.configs) == (code, words, ())
        assert (found.resource_type, found.resource_name) == (type, name)


def test_a_type_that_nobody_knows_refuses_the_whole_request() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        body = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None), DescribeConfigsResource(99, "x", None)])

        assert [found.error_code for found in rig.ask_api(body, ApiKey.DESCRIBE_CONFIGS).results] == [
            ErrorCode.INVALID_REQUEST
        ] * 2


class TestBroker:
    def test_its_own_and_what_was_set_for_all(self) -> None:
        with Rig(num_partitions=7) as rig:
            rig.cluster.alter_broker_configs(-1, lambda _: {"log.roll.ms": "5"})
            found = configs(rig, BROKER, "1")

            assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("7", 4)
            assert (found["log.roll.ms"].value, found["log.roll.ms"].config_source) == ("5", 3)
            assert (found["num.partitions"].read_only, found["log.roll.ms"].read_only) == (True, False)
            assert found["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9001"

    def test_of_all_brokers_only_what_was_set(self) -> None:
        with Rig() as rig:
            rig.cluster.alter_broker_configs(-1, lambda _: {"log.roll.ms": "5"})
            rig.cluster.alter_broker_configs(1, lambda _: {"log.roll.ms": "6"})
            (found,) = configs(rig, BROKER, "", include_synonyms=True).values()

            assert (found.name, found.value, found.config_source) == ("log.roll.ms", "5", 3)
            assert [(synonym.value, synonym.source) for synonym in found.synonyms] == [("5", 3)]

    def test_secrets_are_not_told(self) -> None:
        with Rig(sasl_users={"alice": "secret-word"}) as rig:
            rig.cluster.alter_broker_configs(1, lambda _: {"plugin.password": "secret-word"})
            found = configs(rig, BROKER, "1", include_synonyms=True)

            for name in ("sasl.jaas.config", "plugin.password"):
                assert (found[name].is_sensitive, found[name].value) == (True, None)
                assert {synonym.value for synonym in found[name].synonyms} == {None}
            assert "secret-word" not in repr(found)

    def test_each_broker_tells_of_itself(self) -> None:
        with Rig(brokers=2) as rig:
            body = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "2", ["broker.id"])])
            (found,) = rig.ask(handle_describe_configs, body, ApiKey.DESCRIBE_CONFIGS, broker=2).answer.results

            assert [config.value for config in found.configs] == ["2"]
