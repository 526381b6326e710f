"""Protobuf as a format of schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_kafka_sink.formats.protobuf.message_types import from_json
from spark_kafka_sink.formats.protobuf.protobuf_fit import fit
from spark_kafka_sink.formats.protobuf.protobuf_single import encode_value
from spark_kafka_sink.formats.schema_format import ColumnPlan, Latest, LoadedSchema, SchemaFile, SchemaFormat


class ProtobufFormat(SchemaFormat):
    """Protobuf. References name a file by its import path.

    The driver compiles the schema with libraries of the extra `protobuf`. Tasks get message types as JSON, and need none.
    """

    name = "protobuf"
    kind = "PROTOBUF"

    def prepared(self, text: str, named: Mapping[str, str], message: str | None) -> tuple[str, Mapping[str, str]]:
        from spark_kafka_sink.formats.protobuf.descriptors import message_types

        return message_types(text, named, message).to_json(), {}

    def load(self, text: str, named: Mapping[str, str]) -> LoadedProtobuf:
        return LoadedProtobuf(text)

    def derived(self, kind: pa.DataType, name: str, latest: Latest) -> str:
        from spark_kafka_sink.formats.protobuf.descriptors import earlier_message
        from spark_kafka_sink.formats.protobuf.protobuf_derive import derive

        found = latest()
        return derive(kind, name, None if found is None else (found[0], earlier_message(found[1], found[2], name)))

    def differences(self, old: str, new: str) -> list[str]:
        from spark_kafka_sink.formats.protobuf.descriptors import differences

        return differences(old, new)

    def inline_rules(self, text: str) -> list[str]:
        from spark_kafka_sink.formats.protobuf.descriptors import inline_rules

        return inline_rules(text)

    def files(self, text: str, message: str | None) -> Sequence[SchemaFile]:
        from spark_kafka_sink.formats.protobuf.proto_files import files_of

        return files_of(text, message)


class LoadedProtobuf(LoadedSchema):
    """A Protobuf message. Its indexes follow the schema's id."""

    def __init__(self, text: str) -> None:
        self._schema = from_json(text)
        self.record_name = self._schema.message
        self.after_id = self._schema.index_bytes()

    def fit(self, kind: pa.DataType) -> ColumnPlan:
        return fit(self._schema, kind)

    def encode_value(self, value: Any, prefix: bytes = b"") -> bytes | None:
        return encode_value(self._schema, value, prefix)
