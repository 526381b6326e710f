"""Configs of topics and brokers are described, replaced and altered."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
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
from tests.every import every

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


@every(
    "type, name, code, words",
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


@every(
    "before, operation, value, after",
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, SUBTRACT, "delete", ""),
        ("compact", APPEND, "compact", "compact"),
        ("compact", APPEND, "delete,delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "compact,none", "delete"),
        ("", APPEND, "compact", "compact"),
    ],
)
def test_lists_grow_and_shrink(before: str | None, operation: int, value: str, after: str) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={} if before is None else {"cleanup.policy": before})

        assert altered(rig, (TOPIC, "t", [("cleanup.policy", operation, value)])) == [DONE]
        assert rig.cluster.image.topics["t"].configs == {"cleanup.policy": after}


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


def test_a_trial_changes_nothing() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        changes: list[Change] = [("retention.ms", SET, "5")]

        assert altered(rig, (TOPIC, "t", changes), validate_only=True) == [DONE]
        assert altered(rig, (TOPIC, "t", [("retention.ms", SET, "x")]), validate_only=True)[0][0] == ErrorCode.INVALID_CONFIG
        assert not rig.cluster.image.topics["t"].configs


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


def test_a_resource_that_is_named_twice_stays_as_it_is() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        twice: tuple[int, str, list[Change]] = (TOPIC, "t", [("retention.ms", SET, "5")])

        assert altered(rig, twice, twice) == [(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")] * 2
        assert not rig.cluster.image.topics["t"].configs


@every(
    "type, name, changes, code, words",
    [
        (TOPIC, "t", [("a", SET, "1"), ("a", DELETE, None)], ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        (TOPIC, "t", [("a", SET, None), ("b", APPEND, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : a, b"),
        (TOPIC, "t", [("a", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: a"),
        (
            TOPIC, "t", [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (TOPIC, "t", [("a", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key a because its type is not LIST."),
        (TOPIC, "t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (TOPIC, "", [], ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (BROKER, "2", [], ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "x", [], ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (
            BROKER, "1", [("broker.id", SET, "2")],
            ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: Set(broker.id)",
        ),
        (
            BROKER, "", [("log.retention.ms", APPEND, "2")],
            ErrorCode.INVALID_CONFIG, "Config value append is not allowed for config key: log.retention.ms",
        ),
        (99, "x", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request(type: int, name: str, changes: list[Change], code: ErrorCode, words: str) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")

        assert altered(rig, (type, name, changes)) == [(code, words)]


class TestTheOldOne:
    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_what_is_not_named_is_no_longer_set(self, version: int) -> None:
        with Rig() as rig:
            rig.cluster.create_topic("t", configs={"retention.ms": "1", "segment.ms": "2"})

            assert replaced(rig, "t", version, retention_ms="5") == DONE
            assert rig.cluster.image.topics["t"].configs == {"retention.ms": "5"}
            assert replaced(rig, "t", version) == DONE
            assert not rig.cluster.image.topics["t"].configs

    def test_nothing_is_no_value(self) -> None:
        with Rig() as rig:
            rig.cluster.create_topic("t")

            assert replaced(rig, "t", retention_ms=None) == (
                ErrorCode.INVALID_REQUEST,
                "Null value not supported for : retention.ms",
            )

    def test_a_topic_that_is_not_there(self) -> None:
        with Rig() as rig:
            assert replaced(rig, "none")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
