"""Serializers, partitioners and interceptors that options name, created on the driver to check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options, with_prefix
from spark_kafka_sink.producer.interceptors import ProducerInterceptors
from spark_kafka_sink.producer.partitioners.partitioner_table import partitioner_of
from spark_kafka_sink.producer.serializers.serializer import Serializer, is_default
from spark_kafka_sink.producer.serializers.serializer_table import format_named, serializers_of


def checked_options(options: Mapping[str, object], *, warns_of_security: bool = True) -> SinkOptions:
    """Returns `sink_options`, and raises OptionError for a plug-in that tasks could not create, before any task starts."""
    checked = sink_options(options, warns_of_security=warns_of_security)
    try:
        _check_plugins(checked.producer)
    except OptionError as error:
        raise with_prefix(error) from None
    return checked


def _check_plugins(config: ProducerConfig) -> None:
    for option, value in config.settings().items():
        for one in value if isinstance(value, tuple) else (value,):
            try:
                hash(one)
            except TypeError:
                text = f"option {option}: {type(one).__name__} has no __hash__, and tasks look up their producer by its settings"
                raise OptionError(text, option=option) from None
    for part, value in (("key", config.key_serializer), ("value", config.value_serializer)):
        _refuse_registry_in_tasks(part, value)
    with looked_at(config):  # raises for a serializer that cannot be created
        pass
    if isinstance(config.partitioner_class, str | type):  # an object belongs to the program, which configures and closes it
        partitioner_of(config).close()
    named = tuple(value for value in config.interceptor_classes if isinstance(value, str | type))
    ProducerInterceptors.of(replace(config, interceptor_classes=named)).close()


def _refuse_registry_in_tasks(part: str, value: object) -> None:
    """Raises OptionError for a serializer that would ask the registry in each task, with its secrets."""
    schemas = format_named(value) if isinstance(value, str) else getattr(value, "format", "avro")
    if schemas is not None and (isinstance(value, str) or getattr(value, "reads_schema_options", False)):
        option = f"{part}.serializer"
        raise OptionError(
            f"option {option}: use {part}.format={schemas}, with which only the driver asks the registry", option=option
        )


def serializers_by_column(config: ProducerConfig) -> dict[str, Serializer]:
    """Returns the configured serializers of `key` and `value` that options set. Raises OptionError if one cannot be created."""
    key, value = serializers_of(config)
    return {name: serializer for name, serializer in (("key", key), ("value", value)) if not is_default(serializer)}


@contextmanager
def looked_at(config: ProducerConfig) -> Iterator[dict[str, Serializer]]:
    """Yields `serializers_by_column` for checks on the driver. It closes those that it created, not objects of the program."""
    serializers = serializers_by_column(config)
    try:
        yield serializers
    finally:
        for name, serializer in serializers.items():
            if serializer is not getattr(config, f"{name}_serializer"):
                serializer.close()
