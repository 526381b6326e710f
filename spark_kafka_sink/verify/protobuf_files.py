"""The Protobuf schemas of a registry, as descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.errors import InstallationError, SchemaError
from spark_kafka_sink.formats.protobuf.proto_files import files_by_name, in_order
from spark_kafka_sink.installation import not_installed
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.registry.registry_client import SchemaText


def compiled(schema: SchemaText, named: Mapping[str, SchemaText]) -> bytes:
    """Returns a schema and all that it imports as a FileDescriptorSet: each file after those that it imports, the schema last.

    Args:
        schema: a .proto text, or a FileDescriptorProto in base64.
        named: the schemas that it imports, by path.

    Raises:
        InstallationError: protoc is not installed.
        ValueError: the schema is not valid.
    """
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
    except ImportError:
        text = f"Protobuf cannot be read: {not_installed('google.protobuf')}"
        raise InstallationError(text, library="google.protobuf") from None
    try:
        main, files = files_by_name(schema.text, {name: one.text for name, one in named.items()}, None)
        data: bytes = FileDescriptorSet(file=in_order(main, files)).SerializeToString()
        last_file(data)
    except SchemaError as error:
        raise ValueError(error.message) from None
    except TypeError as error:
        raise ValueError(f"it is not valid Protobuf: {quoted(str(error))}") from None
    return data


def last_file(files: bytes) -> Any:
    """Returns the descriptor of the last file of a FileDescriptorSet, in a pool of its own."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    parsed = descriptor_pb2.FileDescriptorSet.FromString(files).file
    for one in parsed:
        pool.Add(one)
    return pool.FindFileByName(parsed[-1].name)


def is_repeated(field: Any) -> bool:
    """Returns whether a field's descriptor is that of a list or a map. Newer releases of protobuf warn of `label`."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
