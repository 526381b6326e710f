"""Options for keys and values in the format of a schema registry: `key.format`, `value.format`, and those that go with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import BOOLEAN, SinkOption
from spark_kafka_sink.options.registry_options import RegistryConfig, registry_config
from spark_kafka_sink.options.schema_options import (
    BOTH_HAVE_ONE_ID,
    FORMAT,
    FORMATS,
    OF_ONE_PART,
    PARTS,
    SCHEMA_ID,
    SCHEMA_OPTIONS,
    SchemaConfig,
    is_format_option,
    is_registry_option,
    is_schema_option,
    schema_config,
)
from spark_kafka_sink.options.secret import is_provider_option

_FORMAT_DOC: Final = (
    "The format of values. Without a column `value` and without `value.columns`, the record's fields are all columns that have no"
    " other use. It needs `schema.registry.url`. See [schemas](schemas.md)."
)


def _shown(value: object) -> str:
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _sink_options() -> Iterator[SinkOption]:
    yield SinkOption("value.format", FORMAT.kind.wanted, "", _FORMAT_DOC, "Spark's sink has no such option.")
    yield SinkOption("key.format", FORMAT.kind.wanted, "", "As `value.format`, for the column `key` or `key.columns`.")
    for name, option in SCHEMA_OPTIONS.items():
        takes = "true or false" if option.kind is BOOLEAN else option.kind.wanted
        if name in OF_ONE_PART:
            yield SinkOption(f"value.{name}", takes, _shown(option.default), option.doc)
            yield SinkOption(f"key.{name}", takes, _shown(option.default), f"As `value.{name}`, for keys.")
        else:
            yield SinkOption(name, takes, _shown(option.default), option.doc)


SCHEMA_SINK_OPTIONS: Final[Sequence[SinkOption]] = tuple(_sink_options())


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """Settings of keys and values that have a format. It stays on the driver, because `registry` holds secrets."""

    registry: RegistryConfig
    configs: tuple[SchemaConfig, ...]

    @property
    def parts(self) -> frozenset[str]:
        """The parts that have a format: key, value or both."""
        return frozenset(config.part for config in self.configs)

    def loaded(self) -> SchemaSettings:
        """Returns the settings with the texts of the files that they name. Raises OptionError if one cannot be read."""
        return replace(self, configs=tuple(config.loaded() for config in self.configs))


def schema_settings(options: Mapping[str, object], kafka: Mapping[str, object]) -> SchemaSettings | None:
    """Returns the settings; None if neither part has a format.

    Args:
        options: the sink's options by lower-cased name.
        kafka: the producer's options, without their prefix.

    Raises:
        OptionError: a value is not valid, options contradict each other, or they would have no effect.
    """
    for name in kafka:
        if is_schema_option(name) or is_format_option(name):
            raise OptionError(f"unknown option kafka.{name}; did you mean {name}?", option=f"kafka.{name}")
    formats = {part: options[f"{part}.format"] for part in PARTS if options.get(f"{part}.format") is not None}
    _check_used(options, formats)
    if not formats:
        return None
    for part in formats:
        if f"{part}.serializer" in kafka:
            raise OptionError(
                f"option {part}.format: cannot be combined with kafka.{part}.serializer; remove one of them",
                option=f"{part}.format",
            )
    if len(formats) > 1 and options.get(SCHEMA_ID) is not None:
        raise OptionError(BOTH_HAVE_ONE_ID, option=SCHEMA_ID)
    configs = tuple(schema_config(part, options, kind, reads_file=False) for part, kind in formats.items())
    providers = {name: value for name, value in kafka.items() if is_provider_option(name)}
    registry = {name: value for name, value in options.items() if is_registry_option(name)}
    return SchemaSettings(registry_config({**registry, **providers}), configs)


def _check_used(options: Mapping[str, object], formats: Mapping[str, object]) -> None:
    """Raises OptionError for an option that has no effect, because its part has no format."""
    for name in options:
        part = name.partition(".")[0]
        of_part = part in PARTS and part not in formats
        if is_schema_option(name) and (of_part or not formats):
            wanted = f"{part}.format" if of_part else "value.format or key.format"
            text = f"option {name}: has no effect without {wanted}; set {wanted.partition(' ')[0]} to {' or '.join(FORMATS)}"
            raise OptionError(text, option=name)
