"""Configs of topics and brokers are described, replaced and altered."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.handlers.configs import (
    handle_describe_configs,
    handle_incremental_alter_configs,
)
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import configs as new
from spark_kafka_sink.protocol.apis.configs import DescribeConfigsRequest, DescribeConfigsResource
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


def test_a_topics_own_value_is_above_that_of_its_broker() -> None:
    with Rig(topic_defaults={"retention.ms": "4", "segment.ms": "5"}) as rig:
        rig.cluster.create_topic("t", configs={"retention.ms": "1"})
        found = configs(rig, TOPIC, "t", ["retention.ms", "segment.ms", "flush.ms"])
        of_broker = configs(rig, BROKER, "1", ["log.retention.ms", "num.io.threads"])

        assert {name: (each.value, each.config_source) for name, each in {**found, **of_broker}.items()} == {
            "retention.ms": ("1", 1),
            "segment.ms": ("5", 4),
            "flush.ms": (str(2**63 - 1), 5),
            "log.retention.ms": ("4", 4),
            "num.io.threads": ("4", 4),
        }
        assert [rig.log("t").config.retention_ms, rig.log("t").config.segment_ms] == [1, 5]


def test_an_internal_config_shows_where_it_is_set() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"internal.segment.bytes": "99"})

        assert configs(rig, TOPIC, "t")["internal.segment.bytes"].value == "99"


class TestBroker:
    def test_secrets_are_not_told(self) -> None:
        with Rig(ssl_keystore_key="secret-word") as rig:
            found = configs(rig, BROKER, "1")

            assert (found["ssl.keystore.key"].is_sensitive, found["ssl.keystore.key"].value) == (True, None)
            assert "secret-word" not in repr(found)

    def test_its_configs_are_not_altered(self) -> None:
        with Rig() as rig:
            text = "The embedded broker does not alter configs of brokers."
            assert altered(rig, (BROKER, "1", [("log.retention.ms", SET, "5")])) == [(ErrorCode.INVALID_REQUEST, text)]
            assert configs(rig, BROKER, "") == {}

    def test_each_broker_tells_of_itself(self) -> None:
        with Rig(brokers=2) as rig:
            body = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "2", ["broker.id"])])
            (found,) = rig.ask(handle_describe_configs, body, ApiKey.DESCRIBE_CONFIGS, broker=2).answer.results

            assert [config.value for config in found.configs] == ["2"]


SET, DELETE = range(2)
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
