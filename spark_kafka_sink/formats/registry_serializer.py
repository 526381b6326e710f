"""The producer's serializers with the schemas of a registry."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from spark_kafka_sink.errors import OptionError, RegistryError, RegistryTimeoutError, UsageError
from spark_kafka_sink.formats.resolve import NewSchema, checked, registered
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema, SchemaSerializer, id_header_name
from spark_kafka_sink.formats.subjects import refuse_rules_of_subject
from spark_kafka_sink.options.registry_options import RegistryConfig, registry_config
from spark_kafka_sink.options.schema_options import (
    OF_ONE_PART,
    PARTS,
    SCHEMA_OPTIONS,
    SchemaConfig,
    is_registry_option,
    is_schema_option,
    refuse_unknown,
    schema_config,
)
from spark_kafka_sink.options.secret import is_provider_option
from spark_kafka_sink.producer.base.lifecycle import in_callback
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import null_column
from spark_kafka_sink.producer.serializers.serializer import Serializer, call_time_left_s
from spark_kafka_sink.records.columns import FixedHeaders
from spark_kafka_sink.registry.registry_client import CALL_S, RegistryClient

_Writer = tuple[str, pa.DataType | None]
"""A topic, and the type of its columns if the schema depends on it."""


class RegistrySerializer(Serializer):
    """Writes keys or values with the schemas of a registry, which it asks when it meets a topic's first row.

    Each format has a class of its own. They differ in their format alone.

    Attributes:
        reads_schema_options: True, so that it gets the producer's options of schemas.
        format: name of the format.
    """

    reads_schema_options = True
    format: str

    def __init__(self, options: Mapping[str, object] | None = None, *, is_key: bool = False) -> None:
        self._lock = threading.Lock()  # for the attributes below; nobody waits for the registry with it
        self._found: dict[_Writer, SchemaSerializer] = {}
        self._new: dict[_Writer, NewSchema] = {}
        self._turns: dict[_Writer, threading.RLock] = {}
        self._client: RegistryClient | None = None
        self._is_closed = False
        self._settings: tuple[RegistryConfig, SchemaConfig] | None = None
        if options is not None:
            self._check_names(options, PARTS[0] if is_key else PARTS[1])
            self.configure(options, is_key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> Any:
        name = type(self).__name__
        raise TypeError(f"{name} holds the registry's secrets and cannot be pickled; in Spark, set value.format={self.format}")

    def _check_names(self, options: Iterable[str], part: str) -> None:
        """Raises OptionError for an option of an object that is unknown, or of the other part."""
        for name in options:
            if not (is_schema_option(name) or name in OF_ONE_PART or is_provider_option(name)):
                refuse_unknown(name, SCHEMA_OPTIONS)
            given, _, bare = name.partition(".")
            if given in PARTS and given != part:
                made = f"this {type(self).__name__} is for {part}s, so it has no effect"
                raise OptionError(f"option {name}: {made}; use {bare}, or make one with is_key={part != PARTS[0]}", option=name)

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        part = PARTS[0] if is_key else PARTS[1]
        registry = {name: value for name, value in settings.items() if is_registry_option(name) or is_provider_option(name)}
        self._settings = registry_config(registry), schema_config(part, settings, self.format)

    def prepare(self, topic: str, kind: pa.DataType | None) -> None:
        if kind is None or not pa.types.is_null(kind):
            self._find(topic, kind, registers=False)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        return self._writer(topic, None).serialize(topic, value, headers)

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        if pa.types.is_null(column.type):
            return null_column(len(column))
        return self._writer(topic, column.type).serialize_column(topic, column)

    def check_part(self, is_key: bool) -> None:
        """Raises OptionError if the object was made for the other part of records."""
        part = PARTS[0] if is_key else PARTS[1]
        if self._settings is not None and self._settings[1].part != part:
            made = f"this {type(self).__name__} is for {self._settings[1].part}s"
            text = f"option {part}.serializer: {made}; make one with is_key={is_key}"
            raise OptionError(text, option=f"{part}.serializer")

    @property
    def own_headers(self) -> tuple[str, ...]:
        return () if self._settings is None else (id_header_name(self._settings[1].part),)

    @property
    def adds_headers(self) -> bool:
        return self._settings is not None and self._settings[1].id_in == "header"

    def headers_of(self, topic: str, kind: pa.DataType | None) -> FixedHeaders:
        return self._writer(topic, kind).headers_of(topic, kind)

    def close(self) -> None:
        """Ends the requests of other threads before their next step, without waiting for them. It cannot be used again."""
        with self._lock:
            self._is_closed = True
            self._found.clear()
            self._new.clear()
            if self._client is not None:
                self._client.close()

    def _writer(self, topic: str, kind: pa.DataType | None) -> SchemaSerializer:
        """Returns the serializer with the topic's schema, which is registered if it is new."""
        found = self._find(topic, kind, registers=True)
        assert found is not None
        return found

    def _find(self, topic: str, kind: pa.DataType | None, *, registers: bool) -> SchemaSerializer | None:
        """Asks the registry at the first column of each type. Several topics are asked for at a time, and each only once.

        Args:
            topic: the topic.
            kind: type of the column; None for a single value.
            registers: whether to register a new schema. Otherwise it is only checked.

        Returns:
            The serializer with the topic's schema; None if it was only checked.
        """
        if self._settings is None:
            name = type(self).__name__
            raise OptionError(f"{name}: an object needs its own options: {name}({{'schema.registry.url': ...}})")
        registry, config = self._settings
        key = (topic, kind if config.text is None and not config.is_registrys else None)
        found = self._found.get(key)
        if found is not None:
            return found
        if in_callback():
            raise RegistryError(f"topic {topic}: its schema is not known yet, and a callback must not wait for the registry")
        with self._lock:
            self._check_open()
            client = self._client = self._client or RegistryClient(registry)
            turn = self._turns.setdefault(key, threading.RLock())
        try:
            if not turn.acquire(timeout=max(0.0, call_time_left_s(CALL_S))):
                raise RegistryTimeoutError(
                    f"topic {topic}: another thread asks the registry for its schema, and got no answer in time"
                )
            found = self._found.get(key)
            if found is not None:
                return found
            limited = client.within(max(0.0, call_time_left_s(CALL_S)))
            part: ResolvedSchema | NewSchema | None = self._new.get(key)
            if part is None:
                part = checked(config, topic, kind, limited)
            elif registers:  # it may have been found long ago, if the other part failed then
                refuse_rules_of_subject(config, part.subject, limited)
            if registers:
                part = registered(part, limited)
            with self._lock:
                self._check_open()
                if isinstance(part, NewSchema):
                    self._new[key] = part
                    return None
                self._new.pop(key, None)
                found = self._found[key] = SchemaSerializer(part)
            return found
        finally:
            try:
                turn.release()
            except RuntimeError:
                pass  # it is another thread's

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"this {type(self).__name__} is closed; a producer closes its serializers, so make a new one")


class AvroSerializer(RegistrySerializer):
    """Writes Avro in the wire format of Confluent's schema registry. Confluent's KafkaAvroSerializer.

    The schema is derived from the first column of a topic, unless the options give one or name one of the registry's. A single
    value is a dict, a Row or a named tuple; its schema must be given or the registry's. Use it by the name `avro`, with its
    options among the producer's, or as an object with its own options.

    Args:
        options: the options of [schemas](schemas.md), such as `schema.registry.url` and `schema`. None: the producer's.
        is_key: whether it serializes keys.

    Attributes:
        format: avro.
        reads_schema_options: True, so that it gets the producer's options of schemas.

    Raises:
        OptionError: An option is unknown or not valid.
    """

    format = "avro"


class JsonSchemaSerializer(RegistrySerializer):
    """Writes JSON in the wire format of Confluent's schema registry, with a JSON Schema. Confluent's KafkaJsonSchemaSerializer.

    Columns and single values are written as by the serializer `json`, and are valid by the schema. `options`, `is_key`, errors
    and the choice of the schema are those of `AvroSerializer`.

    Attributes:
        format: json-schema.
        reads_schema_options: True.
    """

    format = "json-schema"


class ProtobufSerializer(RegistrySerializer):
    """Writes Protobuf in the wire format of Confluent's schema registry. Confluent's KafkaProtobufSerializer.

    A struct column becomes a message. A single value is a dict, a Row, a named tuple or an object of the message's own class.
    `options`, `is_key`, errors and the choice of the schema are those of `AvroSerializer`.

    Attributes:
        format: protobuf.
        reads_schema_options: True.
    """

    format = "protobuf"
