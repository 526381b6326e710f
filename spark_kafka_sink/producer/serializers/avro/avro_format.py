"""Avro as a format of schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.producer.serializers.avro.avro_derive import derive
from spark_kafka_sink.producer.serializers.avro.avro_differences import differences
from spark_kafka_sink.producer.serializers.avro.avro_fit import AvroPlan, fit
from spark_kafka_sink.producer.serializers.avro.avro_schema import full_name, parse
from spark_kafka_sink.producer.serializers.avro.avro_single import encode_value
from spark_kafka_sink.producer.serializers.schemas.schema_format import LoadedSchema, SchemaFormat

_INLINE: Final = "confluent:rules"


class AvroFormat(SchemaFormat):
    """Avro. References name a type by its full name."""

    name = "avro"
    kind = "AVRO"

    def load(self, text: str, named: Mapping[str, str]) -> LoadedAvro:
        return LoadedAvro(text, named)

    def derive(self, kind: pa.DataType, name: str) -> str:
        return derive(kind, name)

    def differences(self, old: str, new: str) -> list[str]:
        return differences(old, new)

    def inline_rules(self, text: str) -> list[str]:
        found: list[str] = []

        def seen(pairs: dict[str, Any]) -> dict[str, Any]:
            if pairs.get(_INLINE):
                found.append(f"{pairs.get('name', 'a type')} ({_INLINE})")
            return pairs

        try:
            json.loads(text, object_hook=seen)
        except ValueError:  # the bare name of a primitive type; anything else is refused as a schema
            return [_INLINE] if _INLINE in text else []
        return found


class LoadedAvro(LoadedSchema):
    """An Avro schema."""

    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        self._tree = parse(text, named)
        self.record_name = full_name(self._tree)

    def fit(self, kind: pa.DataType) -> AvroPlan:
        return fit(self._tree, kind)

    def encode_value(self, value: Any, prefix: bytes = b"") -> bytes | None:
        return encode_value(self._tree, value, prefix)
