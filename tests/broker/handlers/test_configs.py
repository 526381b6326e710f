"""Configs of topics and brokers are described, replaced and altered."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
)
from spark_kafka_sink.protocol import alter_configs as old
from spark_kafka_sink.protocol import configs as new
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.rig import Rig, batch

TOPIC, BROKER = 2, 4


# DescribeConfigs


def result(rig: Rig, type: int, name: str, keys: list[str] | None = None, *, version: int = 4, **fields: Any) -> Any:
    body = DescribeConfigsRequest([DescribeConfigsResource(type, name, keys)], **fields)
    (found,) = rig.ask(handle_describe_configs, body, ApiKey.DESCRIBE_CONFIGS, version).answer.results
    return found


def configs(rig: Rig, type: int, name: str, keys: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    found = result(rig, type, name, keys, **fields)
    assert (found.error_code, found.error_message) == (ErrorCode.NONE, "")
    return {config.name: config for config in found.configs}


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


class TestBroker:
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


TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
# AlterConfigs and IncrementalAlterConfigs


Change = tuple[str, int, str | None]


def altered(rig: Rig, *resources: tuple[int, str, list[Change]], version: int = 1, **fields: Any) -> list[tuple[int, str | None]]:
    wanted = [
        new.AlterConfigsResource(type, name, [new.AlterableConfig(*change) for change in changes])
        for type, name, changes in resources
    ]
    body = new.IncrementalAlterConfigsRequest(wanted, **fields)
    responses = rig.ask(handle_incremental_alter_configs, body, ApiKey.INCREMENTAL_ALTER_CONFIGS, version).answer.responses
    assert [(response.resource_type, response.resource_name) for response in responses] == [each[:2] for each in resources]
    return [(response.error_code, response.error_message) for response in responses]


def replaced(rig: Rig, name: str, version: int = 2, **configs: str | None) -> tuple[int, str | None]:
    wanted = [old.AlterableConfig(config.replace("_", "."), value) for config, value in configs.items()]
    body = old.AlterConfigsRequest([old.AlterConfigsResource(TOPIC, name, wanted)])
    (response,) = rig.ask(handle_alter_configs, body, ApiKey.ALTER_CONFIGS, version).answer.responses
    return response.error_code, response.error_message


DONE = (ErrorCode.NONE, None)


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_not_named_stays(version: int) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"retention.ms": "1", "segment.ms": "2"})

        assert altered(rig, (TOPIC, "t", [("retention.ms", SET, "5"), ("flush.ms", SET, "6")]), version=version) == [DONE]
        assert rig.cluster.image.topics["t"].configs == {"retention.ms": "5", "segment.ms": "2", "flush.ms": "6"}
        assert altered(rig, (TOPIC, "t", [("retention.ms", DELETE, None), ("none", DELETE, "x")]), version=version) == [DONE]
        assert rig.cluster.image.topics["t"].configs == {"segment.ms": "2", "flush.ms": "6"}


def test_it_holds_for_logs_that_are_open() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        log = rig.log("t")
        altered(rig, (TOPIC, "t", [("max.message.bytes", SET, "10"), ("cleanup.policy", SET, "compact")]))

        assert (log.config.max_message_bytes, log.config.compact, log.config.delete) == (10, True, False)
        with pytest.raises(ApiException, match="MESSAGE_TOO_LARGE"):
            log.append_as_leader(batch(b"a value"), 0)
        altered(rig, (TOPIC, "t", [("max.message.bytes", DELETE, None), ("cleanup.policy", DELETE, None)]))
        log.append_as_leader(batch(b"a value"), 0)


def test_what_is_set_for_brokers_holds_for_topics_that_do_not_set_it() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("own", configs={"retention.ms": "1"})
        rig.cluster.create_topic("t")

        assert altered(rig, (BROKER, "", [("log.retention.ms", SET, "5")])) == [DONE]
        assert [rig.log(name).config.retention_ms for name in ("own", "t")] == [1, 5]
        assert altered(rig, (BROKER, "1", [("log.retention.ms", SET, "6")])) == [DONE]
        assert [rig.log(name).config.retention_ms for name in ("own", "t")] == [1, 6]


def test_one_that_is_refused_keeps_no_other_from_being_altered() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        changes: list[Change] = [("retention.ms", SET, "5")]

        assert altered(rig, (TOPIC, "none", changes), (TOPIC, "t", changes)) == [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
            DONE,
        ]
        assert rig.cluster.image.topics["t"].configs == {"retention.ms": "5"}


def test_all_changes_of_a_topic_or_none() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        altered(rig, (TOPIC, "t", [("retention.ms", SET, "5"), ("segment.ms", SET, "x")]))

        assert not rig.cluster.image.topics["t"].configs


class TestTheOldOne:
    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_what_is_not_named_is_no_longer_set(self, version: int) -> None:
        with Rig() as rig:
            rig.cluster.create_topic("t", configs={"retention.ms": "1", "segment.ms": "2"})

            assert replaced(rig, "t", version, retention_ms="5") == DONE
            assert rig.cluster.image.topics["t"].configs == {"retention.ms": "5"}
            assert replaced(rig, "t", version) == DONE
            assert not rig.cluster.image.topics["t"].configs
