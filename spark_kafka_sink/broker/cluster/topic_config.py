"""The definition of a config (ConfigDef), and every topic config of Kafka 4.1 (LogConfig)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.protocol.error_codes import ErrorCode

INT64_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_COMMA: Final = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """The numbers of config types in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigError(ValueError):
    """Kafka's ConfigException. The caller decides which error code it becomes."""


Check = Callable[[str, Any], None]
"""Checks a config's name and a value of its type. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A config. `default`: a value of its type, or None. `is_internal`: described only if it is set."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    check: Check | None = None
    is_internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """Parses text. Raises ConfigError with the text of `ConfigDef.parseType` and its validators."""
        try:
            value = _READERS[self.type](text.strip())
        except ValueError:
            is_boolean = self.type is ConfigType.BOOLEAN
            reason = "Expected value to be either true or false" if is_boolean else f"Not a number of type {self.type.name}"
            raise invalid(self.name, text, reason) from None
        if self.check is not None:
            self.check(self.name, value)
        return value

    def text(self, value: Any) -> str | None:
        """Returns a value as Kafka writes it (`ConfigDef.convertToString`)."""
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(value) if isinstance(value, tuple) else str(value)


def invalid(name: str, value: object, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _whole(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
            raise ValueError
        return int(text)

    return read


_READERS: Final[dict[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _whole(32),
    ConfigType.LONG: _whole(64),
    ConfigType.DOUBLE: float,
    ConfigType.LIST: lambda text: tuple(_COMMA.split(text)) if text else (),
    ConfigType.PASSWORD: str,
}


def at_least(low: int) -> Check:
    return between(low, None)


def between(low: int | None, high: int | None) -> Check:
    def check(name: str, value: float) -> None:
        if low is not None and value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return check


def one_of(*words: str) -> Check:
    def check(name: str, value: str) -> None:
        if value not in words:
            raise invalid(name, value, f"String must be one of: {', '.join(words)}")

    return check


def each_of(*words: str) -> Check:
    check_one = one_of(*words)

    def check(name: str, values: Iterable[str]) -> None:
        for value in values:
            check_one(name, value)

    return check


_HOUR_MS: Final = 60 * 60 * 1000
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TopicConfigKey(ConfigKey):
    """A topic config. `synonyms`: the broker configs that provide the value if the topic does not, each with its factor.

    The first of them wins (`ServerTopicConfigSynonyms`).
    """

    synonyms: tuple[tuple[str, int], ...] = ()


def _gzip_level(name: str, value: int) -> None:
    if value != -1 and not 1 <= value <= 9:
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def _key(name: str, type: ConfigType, default: object, check: Check | None, synonyms: str, doc: str) -> TopicConfigKey:
    """Returns a key. `synonyms`: names separated by blanks, each followed by `*n` if its unit is n ms."""
    pairs = (word.partition("*") for word in synonyms.split())
    return TopicConfigKey(name, type, default, doc, check, synonyms=tuple((word, int(by or 1)) for word, _, by in pairs))


_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST

_KEYS: Final = (
    _key("cleanup.policy", _LIST, ("delete",), each_of("compact", "delete"), "log.cleanup.policy",
         "The cleanup of old segments: delete them, compact them to the last record of each key, or both."),
    _key("compression.gzip.level", _INT, -1, _gzip_level, "compression.gzip.level",
         "The level if compression.type is gzip; -1 is the codec's own default."),
    _key("compression.lz4.level", _INT, 9, between(1, 17), "compression.lz4.level",
         "The level if compression.type is lz4."),
    _key("compression.type", _STRING, "producer",
         one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.type",
         "The codec of stored batches: this codec, none (uncompressed), or the producer's (producer)."),
    _key("compression.zstd.level", _INT, 3, between(-131072, 22), "compression.zstd.level",
         "The level if compression.type is zstd."),
    _key("delete.retention.ms", _LONG, _DAY_MS, at_least(0), "log.cleaner.delete.retention.ms",
         "The time that compaction keeps tombstones, so that consumers see them."),
    _key("file.delete.delay.ms", _LONG, 60_000, at_least(0), "log.segment.delete.delay.ms",
         "The time before the files of a deleted segment are removed from disk."),
    _key("flush.messages", _LONG, INT64_MAX, at_least(1), "log.flush.interval.messages",
         "The number of records after which the log is flushed to disk."),
    _key("flush.ms", _LONG, INT64_MAX, at_least(0), "log.flush.interval.ms log.flush.scheduler.interval.ms",
         "The time after which the log is flushed to disk."),
    _key("follower.replication.throttled.replicas", _LIST, (), None, "",
         "The replicas with throttled replication on the follower: partition:broker, or * for all."),
    _key("index.interval.bytes", _INT, 4096, at_least(0), "log.index.interval.bytes",
         "The number of bytes between two entries of the offset index."),
    _key("leader.replication.throttled.replicas", _LIST, (), None, "",
         "The replicas with throttled replication on the leader: partition:broker, or * for all."),
    _key("local.retention.bytes", _LONG, -2, at_least(-2), "log.local.retention.bytes",
         "retention.bytes of the local part of a tiered log; -2: same as retention.bytes."),
    _key("local.retention.ms", _LONG, -2, at_least(-2), "log.local.retention.ms",
         "retention.ms of the local part of a tiered log; -2: same as retention.ms."),
    _key("max.compaction.lag.ms", _LONG, INT64_MAX, at_least(1), "log.cleaner.max.compaction.lag.ms",
         "The maximum time before a record is compacted."),
    _key("max.message.bytes", _INT, _MIB + 12, at_least(0), "message.max.bytes",
         "The maximum size of a record batch, after compression."),
    _key("message.timestamp.after.max.ms", _LONG, _HOUR_MS, at_least(0), "log.message.timestamp.after.max.ms",
         "The maximum time that a record may be ahead of the broker's clock, with CreateTime."),
    _key("message.timestamp.before.max.ms", _LONG, INT64_MAX, at_least(0), "log.message.timestamp.before.max.ms",
         "The maximum time that a record may be behind the broker's clock, with CreateTime."),
    _key("message.timestamp.type", _STRING, "CreateTime",
         one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type",
         "Whether records keep the producer's timestamp or get the time of arrival."),
    _key("min.cleanable.dirty.ratio", _DOUBLE, 0.5, between(0, 1), "log.cleaner.min.cleanable.ratio",
         "The uncompacted share of a log above which it is compacted again."),
    _key("min.compaction.lag.ms", _LONG, 0, at_least(0), "log.cleaner.min.compaction.lag.ms",
         "The minimum time before a record is compacted."),
    _key("min.insync.replicas", _INT, 1, at_least(1), "min.insync.replicas",
         "The number of in-sync replicas that a write with acks=all needs."),
    _key("preallocate", _BOOLEAN, False, None, "log.preallocate",
         "Whether a segment's file is created with its full size."),
    _key("remote.log.copy.disable", _BOOLEAN, False, None, "",
         "Whether the remote part of a tiered log only shrinks."),
    _key("remote.log.delete.on.disable", _BOOLEAN, False, None, "",
         "Whether the remote part of a log is deleted when tiering is turned off."),
    _key("remote.storage.enable", _BOOLEAN, False, None, "",
         "Whether the log is tiered; this broker does not support tiering."),
    _key("retention.bytes", _LONG, -1, None, "log.retention.bytes",
         "The size of a partition above which the oldest segments are deleted; -1: no limit."),
    _key("retention.ms", _LONG, 7 * _DAY_MS, at_least(-1),
         f"log.retention.ms log.retention.minutes*60000 log.retention.hours*{_HOUR_MS}",
         "The age above which segments are deleted; -1: no limit."),
    _key("segment.bytes", _INT, 1024 * _MIB, at_least(_MIB), "log.segment.bytes",
         "The size of a segment's file. Retention and compaction work on whole segments."),
    _key("segment.index.bytes", _INT, 10 * _MIB, at_least(4), "log.index.size.max.bytes",
         "The size of a segment's index. A full index starts a new segment."),
    _key("segment.jitter.ms", _LONG, 0, at_least(0), f"log.roll.jitter.ms log.roll.jitter.hours*{_HOUR_MS}",
         "The maximum random time by which segment.ms is shortened."),
    _key("segment.ms", _LONG, 7 * _DAY_MS, at_least(1), f"log.roll.ms log.roll.hours*{_HOUR_MS}",
         "The age at which a segment is closed, full or not."),
    _key("unclean.leader.election.enable", _BOOLEAN, False, None, "unclean.leader.election.enable",
         "Whether a replica that is not in sync may lead when no other is left."),
)  # fmt: skip
# Kafka 4.1 has it for tests that need many segments, because segment.bytes must be at least 1 MiB.
_INTERNAL: Final = TopicConfigKey(
    "internal.segment.bytes", _INT, None, "segment.bytes without a lower limit, for tests.", is_internal=True
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfigKey]] = {key.name: key for key in (*_KEYS, _INTERNAL)}
"""The topic configs by name."""


def parsed(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """Parses configs. Raises INVALID_CONFIG as `LogConfig.validate` does, for unknown names first."""
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise ApiException(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    unknown = next((name for name in configs if name not in TOPIC_CONFIGS), None)
    if unknown is not None:
        raise ApiException(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown}")
    try:
        return {name: TOPIC_CONFIGS[name].parse(value) for name, value in configs.items() if value is not None}
    except ConfigError as error:
        raise ApiException(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_together(values: Mapping[str, Any]) -> None:
    """Checks the values of all configs together, including the broker's. Raises ConfigError for a conflict."""
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})")
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        )
