"""Configs are altered, one by one or all at once, and hold at once."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.handlers.alter_configs import handle_alter_configs
from spark_kafka_sink.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from spark_kafka_sink.protocol import alter_configs as old
from spark_kafka_sink.protocol import configs as new
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.rig import Rig, batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
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


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
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


@pytest.mark.parametrize(
    ("type", "name", "changes", "code", "words"),
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
