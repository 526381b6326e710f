"""Finds the serializer that an option names: by Java's class name, a short name, a dotted name, a class, a function or an
object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.schema_options import BOTH_HAVE_ONE_ID, PARTS, SCHEMA_ID
from spark_kafka_sink.options.secret import is_provider_option
from spark_kafka_sink.producer.base.plugins import full_name, plugin
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.json_serializer import JsonSerializer
from spark_kafka_sink.producer.serializers.lists import ListSerializer
from spark_kafka_sink.producer.serializers.primitives import (
    BooleanSerializer,
    ByteArraySerializer,
    ByteBufferSerializer,
    BytesSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    ShortSerializer,
    VoidSerializer,
)
from spark_kafka_sink.producer.serializers.serializer import DefaultSerializer, Serializer
from spark_kafka_sink.producer.serializers.text import StringSerializer, UUIDSerializer

JAVA_PACKAGE = "org.apache.kafka.common.serialization."
CONFLUENT_PACKAGE = "io.confluent.kafka.serializers."

# The module with serializers of formats whose schemas are in a registry. Below: their names, Confluent's names, and the class.
_PLUGINS = "spark_kafka_sink.formats.registry_serializer"
FORMATS: Mapping[str, tuple[str, str]] = {
    "avro": ("KafkaAvroSerializer", "AvroSerializer"),
    "json-schema": ("json.KafkaJsonSchemaSerializer", "JsonSchemaSerializer"),
    "protobuf": ("protobuf.KafkaProtobufSerializer", "ProtobufSerializer"),
}

# Java's name without `Serializer`; `Serdes$` comes before, and `Serde` after, the names of serdes.
_KAFKAS: Mapping[str, type[Serializer]] = {
    "ByteArray": ByteArraySerializer,
    "ByteBuffer": ByteBufferSerializer,
    "Bytes": BytesSerializer,
    "Boolean": BooleanSerializer,
    "Double": DoubleSerializer,
    "Float": FloatSerializer,
    "Integer": IntegerSerializer,
    "List": ListSerializer,
    "Long": LongSerializer,
    "Short": ShortSerializer,
    "String": StringSerializer,
    "UUID": UUIDSerializer,
    "Void": VoidSerializer,
}

SHORT_NAMES: Mapping[str, type[Serializer]] = {
    **{name.lower(): kind for name, kind in _KAFKAS.items()},
    "int": IntegerSerializer,
    "json": JsonSerializer,
}
JAVA_NAMES: Mapping[str, type[Serializer]] = {f"{JAVA_PACKAGE}{name}Serializer": kind for name, kind in _KAFKAS.items()}
JAVA_SERDES: Mapping[str, type[Serializer]] = {f"{JAVA_PACKAGE}Serdes${name}Serde": kind for name, kind in _KAFKAS.items()}


Function = Callable[[Any], bytes | None]
"""What an option may have in place of a serializer."""


class FunctionSerializer(Serializer):
    """Wraps a function of one value that returns bytes. It is not called for None."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return None if value is None else self._function(value)


def serializers_of(config: ProducerConfig) -> tuple[Serializer, Serializer]:
    """Returns a producer's configured serializers of keys and of values. Raises OptionError if one cannot be made."""
    settings = config.settings()
    schemas = dict(config.schemas)
    made = (
        _configured("key.serializer", config.key_serializer, settings, is_key=True, schemas=schemas),
        _configured("value.serializer", config.value_serializer, settings, is_key=False, schemas=schemas),
    )
    given = (config.key_serializer, config.value_serializer)
    readers = [part for part, one in zip(PARTS, made, strict=True) if one.reads_schema_options and one not in given]
    _check_used([name for name, value in schemas.items() if value is not None and not is_provider_option(name)], readers)
    return made


def _check_used(schemas: Sequence[str], readers: Sequence[str]) -> None:
    """Raises OptionError for an option of schemas that no serializer reads, or that means one schema for keys and values."""
    for option in schemas:
        part = option.partition(".")[0]
        if not readers:
            readers = f"only the serializers {', '.join(FORMATS)} read it"
            text = f"option {option}: {readers}; set value.serializer or key.serializer to one of them"
            raise OptionError(text, option=option)
        if part in PARTS and part not in readers:
            text = f"option {option}: has no effect without {part}.serializer; set it to {' or '.join(FORMATS)}"
            raise OptionError(text, option=option)
        if option == SCHEMA_ID and len(readers) > 1:
            raise OptionError(BOTH_HAVE_ONE_ID, option=option)


def inner_serializer(option: str, settings: Mapping[str, object], is_key: bool) -> Serializer:
    """Returns the serializer named by default.list.*.serde.inner, which may also name one of Java's serdes."""
    value = settings.get(option)
    if value is None:
        raise OptionError(f"option {option}: required by the list serializer: name the serializer of the elements", option=option)
    if _named_class(value, JAVA_SERDES) is ListSerializer or value is ListSerializer:
        # Java's would look up its own inner serializer under the same option, forever.
        raise OptionError(
            f"option {option}: lists of lists are not supported: each level would need its own option", option=option
        )
    return _configured(option, value, settings, is_key, known=JAVA_SERDES)


def _configured(
    option: str,
    value: object,
    settings: Mapping[str, object],
    is_key: bool,
    known: Mapping[str, type[Serializer]] = MappingProxyType({}),
    schemas: Mapping[str, object] = MappingProxyType({}),
) -> Serializer:
    if value is None:
        return DefaultSerializer()
    serializer = _made(option, value, known)
    if serializer is value and serializer.reads_schema_options and hasattr(serializer, "check_part"):
        serializer.check_part(is_key)
    if serializer is not value:
        serializer.configure({**settings, **schemas} if serializer.reads_schema_options else settings, is_key)
    if isinstance(serializer, ListSerializer):
        option = f"default.list.{'key' if is_key else 'value'}.serde.inner"
        serializer.complete(lambda: inner_serializer(option, settings, is_key))
    return serializer


def _made(option: str, value: object, known: Mapping[str, type[Serializer]]) -> Serializer:
    kind = _named_class(value, known)
    if kind is not None:
        return kind()
    if isinstance(value, str):
        _refuse_unknown(option, value, known)
    try:
        made = plugin(value, option)
    except OptionError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise OptionError(f"{error.message}; Java classes are not supported", option=option) from error.__cause__
    kind = type(made)
    if isinstance(made, Serializer):
        if kind.serialize is Serializer.serialize and kind.serialize_column is Serializer.serialize_column:
            text = f"option {option}: {full_name(kind)} has neither serialize nor serialize_column"
            raise OptionError(text, option=option)
        return made
    if callable(made) and not isinstance(value, type | str):
        return FunctionSerializer(made)
    raise OptionError(f"option {option}: {full_name(kind)} must inherit from Serializer", option=option)


def _named_class(value: object, known: Mapping[str, type[Serializer]]) -> type[Serializer] | None:
    if not isinstance(value, str):
        return None
    schemas = format_named(value)
    if schemas is not None:
        # By name, because formats are built upon this package. Most tasks need neither the schemas nor the registry's client.
        kind: type[Serializer] = getattr(import_module(_PLUGINS), FORMATS[schemas][1])
        return kind
    return SHORT_NAMES.get(value.lower()) or JAVA_NAMES.get(value) or known.get(value)


def format_named(name: str) -> str | None:
    """Returns the format of schemas that the name of a serializer stands for; None for other serializers."""
    for schemas, (java, _) in FORMATS.items():
        if name.lower() == schemas or name == f"{CONFLUENT_PACKAGE}{java}":
            return schemas
    return None


def _refuse_unknown(option: str, name: str, known: Mapping[str, type[Serializer]]) -> None:
    """Raises OptionError for a name that cannot be a Python class."""
    if name.startswith(CONFLUENT_PACKAGE):
        known_here = ", ".join(f"{CONFLUENT_PACKAGE}{java}" for java, _ in FORMATS.values())
        raise OptionError(f"option {option}: Java class {name} has no equivalent here; these have: {known_here}", option=option)
    if name.startswith("org.apache.kafka."):
        names = [*JAVA_NAMES, *known]
        raise OptionError(f"option {option}: Java class {name} has no equivalent here{nearest(name, names)}", option=option)
    if "." not in name:
        short = (*SHORT_NAMES, *FORMATS)
        text = f"option {option}: {name!r} is not a known serializer{nearest(name.lower(), short)}"
        raise OptionError(f"{text}; must be one of {', '.join(short)}, or package.module.Class", option=option)
