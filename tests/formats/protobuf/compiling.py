"""Protobuf's own compiler and runtime, which judge what was written."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from google.protobuf import __version__ as protobuf_version
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

HAS_EDITIONS = int(protobuf_version.split(".")[0]) >= 6
NEEDS_EDITIONS = pytest.mark.skipif(not HAS_EDITIONS, reason="editions need protobuf 6")
_KNOWN = str(Path(protoc.__file__).with_name("_proto"))


def file_set(text: str, named: Mapping[str, str] | None = None) -> FileDescriptorSet:
    """Returns the descriptors of a schema, and of all that it imports."""
    with TemporaryDirectory() as folder:
        for name, content in {**(named or {}), "main.proto": text}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        found = f"{folder}/found"
        code = protoc.main(
            ["protoc", f"-I{folder}", f"-I{_KNOWN}", "--include_imports", f"--descriptor_set_out={found}", f"{folder}/main.proto"]
        )
        assert code == 0, text
        return FileDescriptorSet.FromString(Path(found).read_bytes())


def message_class(files: FileDescriptorSet, name: str) -> Any:
    """Returns the class of a message in the runtime."""
    pool: Any = DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def message_of(own: Any, values: Mapping[str, Any]) -> Any:
    """Returns a message of a runtime's class with values. Constructors of protobuf 5.26 take no dicts for messages in a map."""
    made = own()
    _fill(made, values)
    return made


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        inner = message.DESCRIPTOR.fields_by_name[name].message_type
        own = getattr(message, name)
        if inner is None and not isinstance(value, list):
            setattr(message, name, value)
        elif inner is None:
            own.extend(value)
        elif isinstance(value, list):
            for one in value:
                _fill(own.add(), one)
        elif not inner.GetOptions().map_entry:
            own.SetInParent()
            _fill(own, value)
        elif inner.fields_by_name["value"].message_type is None:
            own.update(value)
        else:
            for key, one in value.items():
                _fill(own[key], one)


@lru_cache
def reader(text: str, name: str) -> Any:
    """Returns the class of a message in a schema without imports of its own."""
    return message_class(file_set(text), name)


class SerializedSchemas(SchemaRegistryClient):
    """Confluent's client, which gets descriptors as from Confluent's server. Apicurio returns the text that was registered."""

    def __init__(self, url: str, named: Mapping[str, str] | None = None) -> None:
        super().__init__({"url": url})
        self._named = named

    def get_schema(self, *args: Any, **kwargs: Any) -> Schema:
        return self._serialized(super().get_schema(*args, **kwargs))

    def get_schema_by_guid(self, *args: Any, **kwargs: Any) -> Schema:
        return self._serialized(super().get_schema_by_guid(*args, **kwargs))

    def get_version(self, *args: Any, **kwargs: Any) -> RegisteredSchema:
        found = super().get_version(*args, **kwargs)
        return attrs.evolve(found, schema=self._serialized(found.schema))

    def get_latest_version(self, *args: Any, **kwargs: Any) -> RegisteredSchema:
        found = super().get_latest_version(*args, **kwargs)
        return attrs.evolve(found, schema=self._serialized(found.schema))

    def _serialized(self, schema: Schema) -> Schema:
        text = schema.schema_str or ""
        if "{" not in text:
            return schema
        own = file_set(text, self._named).file[-1]
        for message in own.message_type:
            _move_entries(message)
        return attrs.evolve(schema, schema_str=b64encode(own.SerializeToString()).decode())


def _move_entries(message: DescriptorProto) -> None:
    """Moves the entries of maps behind other messages, where Confluent's server has them when it makes descriptors of a text."""
    nested = sorted(message.nested_type, key=lambda one: one.options.map_entry)
    del message.nested_type[:]
    message.nested_type.extend(nested)
