"""The same requests for configs to Kafka 4.1 and to the embedded broker: the same answers, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_sink.broker.server_properties import SETTINGS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import cluster as old
from spark_kafka_sink.protocol.apis import configs as new
from spark_kafka_sink.protocol.apis.configs import DescribeConfigsRequest, DescribeConfigsResource
from spark_kafka_sink.protocol.apis.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.broker.as_kafka.pair import BROKER, TOPIC, Pair, eventually
from tests.kafka.fixtures import only_real_kafka

pytestmark = only_real_kafka  # it is what the embedded broker is compared with

SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]

VALUES: dict[str, list[str | None]] = {
    "nothing": ["1"],
    "retention.ms": [None, "x", "-2", " 5 ", "1.5", "9" * 20, ""],
    "retention.bytes": ["-5"],
    "segment.bytes": ["1048575", "2147483648", "1e6"],
    "internal.segment.bytes": ["100"],
    "cleanup.policy": ["delete,x", "", "Delete", "compact, delete", "delete,delete", ",delete"],
    "compression.type": ["brotli", "", " lz4"],
    "compression.gzip.level": ["0", "-1", "10"],
    "compression.lz4.level": ["0", "18"],
    "compression.zstd.level": ["23", "-131073"],
    "min.cleanable.dirty.ratio": ["1.1", "-0.1", "a", "0.25"],
    "preallocate": ["yes", "TRUE", " true "],
    "message.timestamp.type": ["createtime"],
    "min.insync.replicas": ["0"],
    "max.message.bytes": ["-1"],
    "leader.replication.throttled.replicas": ["*", "1:2,3:4"],
    "remote.storage.enable": ["true"],
    "remote.log.copy.disable": ["true"],
    "local.retention.ms": ["-3"],
    "segment.ms": ["0"],
    "segment.index.bytes": ["3"],
    "flush.messages": ["0"],
    "index.interval.bytes": ["-1"],
    "max.compaction.lag.ms": ["0"],
    "message.format.version": ["3.0"],
    "message.downconversion.enable": ["true"],
}
"""Good and bad ones; None is no value."""


class TestOfANewTopic:
    @pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALUES.items() for value in values])
    def test_one(self, both: Pair, name: str, value: str | None) -> None:
        wanted = CreatableTopic(both.missing, 1, 1, configs=[CreatableTopicConfig(name, value)])

        def seen(answer: Any) -> Any:
            (result,) = answer.topics
            told = [config.value for config in result.configs if config.name == name]
            return result.error_code, result.error_message, told

        both.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([wanted], validate_only=True), seen)

    def test_two_that_do_not_go_together(self, both: Pair) -> None:
        lags = [CreatableTopicConfig("min.compaction.lag.ms", "10"), CreatableTopicConfig("max.compaction.lag.ms", "5")]
        wanted = CreatableTopic(both.missing, 1, 1, configs=lags)
        both.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([wanted], validate_only=True))


def describing(type: int, name: str, keys: list[str] | None = None, *, synonyms: bool = False) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(type, name, keys)], include_synonyms=synonyms)


class TestDescribed:
    @pytest.mark.parametrize("version", range(1, 5))
    def test_every_one_of_a_topic(self, both: Pair, version: int) -> None:
        def seen(answer: Any) -> Any:
            (result,) = answer.results
            # That one Kafka sets for all brokers when it begins (KIP-966), so it comes from another place.
            told = {config.name: str(config) for config in result.configs if config.name != "min.insync.replicas"}
            return result.error_code, result.error_message, told

        assert len(both.ask(ApiKey.DESCRIBE_CONFIGS, version, describing(TOPIC, both.t), seen)[2]) == 32

    def test_those_of_a_broker_that_both_have(self, both: Pair) -> None:
        """Their types, whether they are secrets, and Kafka's defaults as docs/broker.md tells them."""
        found: list[dict[str, Any]] = []

        def seen(answer: Any) -> Any:
            (result,) = answer.results
            found.append({config.name: config for config in result.configs})
            return result.error_code

        both.ask(ApiKey.DESCRIBE_CONFIGS, 4, describing(BROKER, "1", synonyms=True), seen)
        kafka, ours = found
        kinds = [{name: (each[name].config_type, each[name].is_sensitive) for name in ours} for each in (kafka, ours)]
        assert kinds[0] == kinds[1]
        assert len(ours) > 60
        defaults = {name: [each.value for each in kafka[name].synonyms if each.source == 5] for name in SETTINGS if name in ours}
        texts = {name: SETTINGS[name].text(SETTINGS[name].default) for name in defaults}
        assert {name: [] if text is None else [text] for name, text in texts.items()} == defaults

    @pytest.mark.parametrize(("type", "name"), [(TOPIC, "none.such"), (TOPIC, "a b"), (TOPIC, ""), (BROKER, "9"), (BROKER, "x")])
    def test_what_has_none(self, both: Pair, type: int, name: str) -> None:
        both.ask(ApiKey.DESCRIBE_CONFIGS, 4, describing(type, name))

    @pytest.mark.parametrize("keys", [["retention.ms", "none"], []])
    def test_those_that_are_asked_for(self, both: Pair, keys: list[str]) -> None:
        def seen(answer: Any) -> Any:
            return sorted(config.name for config in answer.results[0].configs)

        both.ask(ApiKey.DESCRIBE_CONFIGS, 4, describing(TOPIC, both.t, keys), seen)

    def test_a_type_that_is_none_refuses_all(self, both: Pair) -> None:
        body = DescribeConfigsRequest([DescribeConfigsResource(99, "x", None), DescribeConfigsResource(TOPIC, both.t, None)])
        both.ask(ApiKey.DESCRIBE_CONFIGS, 4, body, lambda answer: [result.error_code for result in answer.results])


def altering(*resources: tuple[int, str, list[Change]], validate_only: bool = False) -> new.IncrementalAlterConfigsRequest:
    wanted = [
        new.AlterConfigsResource(type, name, [new.AlterableConfig(*change) for change in changes])
        for type, name, changes in resources
    ]
    return new.IncrementalAlterConfigsRequest(wanted, validate_only)


class TestAltered:
    @pytest.mark.parametrize(
        "changes",
        [
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            [("retention.ms", SET, None), ("segment.ms", APPEND, None)],
            [("retention.ms", APPEND, "1")],
            [("retention.ms", SUBTRACT, "1")],
            [("none", SET, "1")],
            [("none", DELETE, None)],
            [("none", APPEND, "1")],
            [("retention.ms", SET, "x")],
            [("cleanup.policy", APPEND, "zzz")],
            [("cleanup.policy", SUBTRACT, "delete")],
            [],
        ],
        ids=str,
    )
    def test_of_a_topic(self, both: Pair, changes: list[Change]) -> None:
        for name in (both.t, both.missing):
            both.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altering((TOPIC, name, changes), validate_only=True))

    @pytest.mark.parametrize(
        ("type", "name", "changes"),
        [
            (TOPIC, "", [("retention.ms", SET, "1")]),
            (TOPIC, "a b", [("retention.ms", SET, "1")]),
            (0, "x", []),
            (99, "x", []),
        ],
    )
    def test_of_others(self, both: Pair, type: int, name: str, changes: list[Change]) -> None:
        both.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altering((type, name, changes), validate_only=True))

    def test_a_resource_that_is_named_twice(self, both: Pair) -> None:
        twice: tuple[int, str, list[Change]] = (TOPIC, both.t, [("retention.ms", SET, "1")])
        both.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, altering(twice, twice))

    def test_what_becomes_of_a_list(self, both: Pair) -> None:
        def value(answer: Any) -> Any:
            return answer.results[0].configs[0].value

        for operation, given, becomes in [
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete,none", "compact"),
            (SET, "compact , delete", "compact,delete"),
            (DELETE, None, "delete"),
        ]:
            both.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altering((TOPIC, both.t, [("cleanup.policy", operation, given)])))
            eventually(self._is(both, becomes, value))

    @staticmethod
    def _is(both: Pair, wanted: str, value: Callable[[Any], Any]) -> Callable[[], bool]:
        body = describing(TOPIC, both.t, ["cleanup.policy"])
        return lambda: bool(both.ask(ApiKey.DESCRIBE_CONFIGS, 4, body, value) == wanted)


class TestAlteredTheOldWay:
    @pytest.mark.parametrize(
        ("type", "configs"),
        [
            (TOPIC, [("retention.ms", None)]),
            (TOPIC, [("retention.ms", "1"), ("retention.ms", "1")]),
            (TOPIC, [("none", "1")]),
            (TOPIC, [("retention.ms", "1")]),
            (8, []),
            (99, []),
        ],
    )
    def test_one_resource(self, both: Pair, type: int, configs: list[tuple[str, str | None]]) -> None:
        for name in (both.t, both.missing):
            wanted = old.AlterConfigsResource(type, name, [old.AlterableConfig(*config) for config in configs])
            both.ask(ApiKey.ALTER_CONFIGS, 2, old.AlterConfigsRequest([wanted], True))
