"""What holds for a topic in the end: what was set for it, and below that what its brokers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import EVERY_BROKER, inherited, topic_values
from spark_kafka_sink.broker.cluster.config_def import ConfigError
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS, check_together, parsed
from spark_kafka_sink.protocol.error_codes import ErrorCode


def effective_configs(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str]) -> dict[str, Any]:
    """Every topic config's value, where `configs` were set for the topic. Raises INVALID_CONFIG."""
    return topic_values(config, image, _deciding_broker(image), parsed(configs))


def effective_config(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str], name: str) -> Any:
    """One of them, for who asks with every batch."""
    key = TOPIC_CONFIGS[name]
    return key.parse(configs[name]) if name in configs else inherited(config, image, _deciding_broker(image), key)


def checked_topic_configs(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str | None]) -> dict[str, str]:
    """What is to be kept of them, as it was written. Raises INVALID_CONFIG (`LogConfig.validate`)."""
    values = parsed(configs)
    try:
        check_together(topic_values(config, image, _deciding_broker(image), values))
    except ConfigError as error:
        raise ApiException(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {name: text for name, text in configs.items() if text is not None}


def check_topic_defaults(config: BrokerConfig) -> None:
    """Raises ValueError for a broker that would make topics of invalid configs."""
    try:
        checked_topic_configs(config, MetadataImage(), config.topic_defaults)
    except ApiException as error:
        raise ValueError(f"topic_defaults: {error.message}") from None


def _deciding_broker(image: MetadataImage) -> int:
    """A log exists once, whichever broker leads it: of brokers with configs of their own the first decides."""
    return min((node for node, configs in image.configs.items() if configs and node != EVERY_BROKER), default=EVERY_BROKER)
