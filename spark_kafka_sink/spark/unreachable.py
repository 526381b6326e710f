"""The error of a driver that reaches no broker, and how long the driver tries."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import DeadlineError, MetadataTimeoutError
from spark_kafka_sink.spark.options import SinkOptions

_PATIENCE_MS: Final = 10_000
_SHARE: Final = 6  # part of max.block.ms: 10 s of its default of 60 s, and more if the option is larger


def contact_limit_ms(config: ProducerConfig) -> int:
    """Returns how long the driver waits for the first answer of a broker, in ms."""
    return max(min(config.max_block_ms, _PATIENCE_MS), config.max_block_ms // _SHARE)


def unreachable(options: SinkOptions, error: DeadlineError) -> MetadataTimeoutError:
    """Returns the error for `error`, with which a request to any broker timed out. It names the addresses."""
    servers = ",".join(options.producer.bootstrap_servers)
    topic = "" if options.topic is None else f"topic {options.topic}: "
    limit_s = contact_limit_ms(options.producer) / 1000
    text = f"{topic}no broker of bootstrap.servers {servers} answered the Spark driver within {limit_s:g} s"
    reason = error.message.partition("the brokers: ")[2] or error.message
    return MetadataTimeoutError(
        f"{text}: {reason}. Check bootstrap.servers, and that the driver may connect to it", topic=options.topic
    )
