"""Compiles the Protobuf schemas of a registry with protoc."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.installation import not_installed
from spark_kafka_sink.registry.registry_client import SchemaText

_MAIN: Final = "spark_kafka_sink_verified.proto"


def compiled(schema: SchemaText, named: Mapping[str, SchemaText]) -> bytes:
    """Returns a schema and all that it imports as a FileDescriptorSet: each file after those that it imports, the schema last.

    Args:
        schema: a .proto text, or a FileDescriptorProto in base64.
        named: the schemas that it imports, by path; each comes after those that it imports itself.

    Raises:
        InstallationError: protoc is not installed.
        ValueError: the schema is not valid.
    """
    texts = {**{name: one.text for name, one in named.items()}, _MAIN: schema.text}
    try:
        from google.protobuf import descriptor_pb2
    except ImportError:
        text = f"Protobuf cannot be read: {not_installed('google.protobuf')}"
        raise InstallationError(text, library="google.protobuf") from None
    parsed = [_serialized(name, text) for name, text in texts.items()]
    if all(one is not None for one in parsed):
        files: bytes = descriptor_pb2.FileDescriptorSet(file=parsed).SerializeToString()
        return files
    return _by_protoc(texts)


def _serialized(name: str, text: str) -> Any:
    """Returns a descriptor that a registry keeps as base64; None for a .proto text."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        read = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    read.name = name
    return read


def _by_protoc(texts: Mapping[str, str]) -> bytes:
    try:
        import grpc_tools
        from grpc_tools import protoc
    except ImportError:
        raise InstallationError(f"Protobuf cannot be read: {not_installed('grpc_tools')}", library="grpc_tools") from None
    with tempfile.TemporaryDirectory(prefix="spark-kafka-sink-") as name:
        folder = Path(name)
        for file, text in texts.items():
            path = (folder / "in" / file).resolve()
            if not path.is_relative_to((folder / "in").resolve()):
                raise ValueError(f"the schema imports {file}, which is not a relative path")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        output = folder / "files"
        arguments = ["protoc", f"-I{folder / 'in'}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={output}"]
        if protoc.main([*arguments, _MAIN]):
            raise ValueError("it is not valid Protobuf")
        return output.read_bytes()


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
