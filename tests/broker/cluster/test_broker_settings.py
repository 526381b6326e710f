"""Where the value of a broker's config comes from."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import BROKER_CONFIGS, BrokerSettings, ConfigLocation, ConfigSource
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from tests.broker.cluster.clusters import broker
from tests.every import every

IMAGE = MetadataImage(brokers={1: broker(1)})


def settings(image: MetadataImage = IMAGE, **config: Any) -> BrokerSettings:
    return BrokerSettings(BrokerConfig(**config), image, 1)


def test_the_first_place_wins() -> None:
    image = MetadataImage(configs={1: {"log.roll.ms": "1"}, -1: {"log.roll.ms": "2"}})
    found = settings(image, topic_defaults={"segment.ms": "3"})

    assert found.locations("log.roll.ms") == [
        ConfigLocation("log.roll.ms", "1", ConfigSource.DYNAMIC_BROKER),
        ConfigLocation("log.roll.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigLocation("log.roll.ms", "3", ConfigSource.STATIC_BROKER),
        ConfigLocation("log.roll.hours", "168", ConfigSource.DEFAULT),
    ]
    assert found.text("log.roll.ms") == "1"


def test_a_default_in_another_unit_is_no_place_of_its_own() -> None:
    assert settings().locations("log.roll.ms") == []
    assert settings().text("log.roll.ms") is None
    assert settings().locations("log.roll.hours") == [ConfigLocation("log.roll.hours", "168", ConfigSource.DEFAULT)]


def test_what_was_set_when_the_broker_was_made_is_static() -> None:
    found = settings(num_partitions=7)

    assert [place.source for place in found.locations("num.partitions")] == [ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT]
    assert found.text("num.partitions") == "7"


def test_another_brokers_own_are_not_looked_at() -> None:
    image = MetadataImage(configs={2: {"log.roll.ms": "1"}})

    assert settings(image).text("log.roll.ms") is None


def test_who_and_where_it_is() -> None:
    found = settings()

    assert (found.text("broker.id"), found.text("node.id")) == ("1", "1")
    assert found.text("advertised.listeners") == "PLAINTEXT://127.0.0.1:9001"


def test_names_that_only_plugins_know_are_among_them() -> None:
    image = MetadataImage(configs={-1: {"my.option": "x"}})

    assert settings(image).names() - set(BROKER_CONFIGS) == {"my.option"}


def test_users_and_passwords_are_not_shown() -> None:
    found = settings(sasl_users={"alice": "secret"})

    assert found.text("sasl.jaas.config") == "[hidden]"
    assert BROKER_CONFIGS["sasl.jaas.config"].is_sensitive


@every("key", BROKER_CONFIGS.values())
def test_every_default_is_of_its_type(key: Any) -> None:
    text = key.text(key.default)

    assert text is None or key.parse(text) == key.default


def test_a_topics_own_value_is_above_its_brokers() -> None:
    found = settings(topic_defaults={"segment.ms": "3"})

    assert found.topic_locations(TOPIC_CONFIGS["segment.ms"], {"segment.ms": " 4 "})[:2] == [
        ConfigLocation("segment.ms", "4", ConfigSource.TOPIC),
        ConfigLocation("log.roll.ms", "3", ConfigSource.STATIC_BROKER),
    ]


def test_a_topic_config_that_brokers_do_not_have() -> None:
    key = TOPIC_CONFIGS["remote.storage.enable"]

    assert settings().topic_locations(key, {}) == []
    assert settings(topic_defaults={"remote.storage.enable": "false"}).topic_locations(key, {}) == [
        ConfigLocation("remote.storage.enable", "false", ConfigSource.STATIC_BROKER)
    ]
