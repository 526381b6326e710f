"""Settings by Kafka's names become a BrokerConfig."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.server_properties import SETTINGS, TOPIC_SETTINGS, config_from
from spark_kafka_sink.errors import OptionError
from tests.every import every

NO_TEXT = {"acls", "client_metrics", "data_dir", "host", "like", "release", "sasl_users", "topic_defaults"}


def test_every_field_has_its_setting() -> None:
    assert {setting.field for setting in SETTINGS.values()} == {each.name for each in fields(BrokerConfig)} - NO_TEXT


@every("name", SETTINGS)
def test_a_default_that_is_given_changes_nothing(name: str) -> None:
    assert config_from({name: SETTINGS[name].text_in(BrokerConfig()) or ""}) == BrokerConfig()


def test_values_are_of_the_fields_types() -> None:
    config = config_from(
        {
            "num.io.threads": "9",
            "auto.create.topics.enable": "false",
            "offsets.retention.minutes": "2",
            "max.connections.per.ip.overrides": "127.0.0.1:5,::1:6",
            "sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-512",
            "transaction.version": "1",
        },
        data_dir=Path("/data"),
    )

    assert config == BrokerConfig(
        num_io_threads=9,
        auto_create_topics_enable=False,
        offsets_retention_ms=120_000,
        max_connections_per_ip_overrides={"127.0.0.1": 5, "::1": 6},
        sasl_mechanisms=("PLAIN", "SCRAM-SHA-512"),
        transaction_version=1,
        data_dir=Path("/data"),
    )


def test_topics_have_defaults_by_their_own_names_and_by_those_of_a_broker() -> None:
    config = config_from({"log.segment.bytes": "2097152", "cleanup.policy": "compact", "message.max.bytes": "2000000"})

    assert config.topic_defaults == {
        "segment.bytes": "2097152",
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
    }


@every(
    "settings, retention_ms",
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.ms": "5", "log.retention.minutes": "3", "log.retention.hours": "2"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_of_several_units_the_finest_wins(settings: dict[str, str], retention_ms: int) -> None:
    assert config_from(settings).topic_defaults == {"retention.ms": str(retention_ms)}


@every(
    "settings, text",
    [
        ({"num.io.thread": "3"}, "unknown setting num.io.thread; did you mean num.io.threads?"),
        ({"retention.millis": "3"}, "unknown setting retention.millis; did you mean retention.ms?"),
        ({"xyzzy": "3"}, "unknown setting xyzzy"),
        ({"num.io.threads": "0"}, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        ({"transaction.version": "3"}, "Invalid value 3 for configuration transaction.version: Value must be no more than 2"),
        ({"log.retention.hours": "x"}, "Invalid value x for configuration log.retention.hours: Not a number of type INT"),
        ({"max.connections.per.ip.overrides": "x"}, "Invalid value x for configuration max.connections.per.ip.overrides"),
        (
            {"cleanup.policy": "none"},
            "cleanup.policy: String must be one of: compact, delete",
        ),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "max.compaction.lag.ms"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        config_from(settings)

    assert text in refused.value.message


def test_names_mean_one_thing() -> None:
    assert not SETTINGS.keys() & TOPIC_SETTINGS.keys()
