"""Makes message types from .proto text or from descriptors. It needs Protobuf's library and compiler, so it runs on the driver.

A schema is .proto text, or a FileDescriptorProto or FileDescriptorSet in base64. Registries hold the first two.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.producer.serializers.protobuf.message_types import ENUM, MESSAGE, Enum, Field, Message, ProtobufSchema
from spark_kafka_sink.producer.serializers.schemas.schema_format import SchemaFile

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

DEADLINE_S: Final = 60.0
_USED_BY: Final = "the format protobuf"
_MAIN: Final = "schema.proto"
_NOT_FOUND: Final = re.compile(r'^(?:[^:\n]+:\d+:\d+: )?"?([^\s":]+)"?: File not found\.', re.MULTILINE)
_REMARK: Final = re.compile(r"^WARNING: |^[IWE]\d{4} |: warning: ")
_LITERALS: Final = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_RULES: Final = re.compile(r"(?:(\w+)\s*=\s*\d+\s*\[[^;]*?)?\(\s*\.?confluent\.\w+_meta\s*\)[^;]*?\brules\b")
# Messages of these files are known to registries, so a schema may import them without a reference.
_KNOWN: Final = ("google/protobuf/", "google/type/")
_META: Final = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL: Final = """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_OWN: Final[Mapping[str, str]] = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}


def message_types(text: str, named: Mapping[str, str], message: str | None) -> ProtobufSchema:
    """Returns a message with all types that it uses.

    Args:
        text: the schema.
        named: the schemas that it imports, by import path.
        message: full name of the message; None: the first one of the schema.

    Raises:
        SchemaError: The text is not a valid schema, an import is unknown, or there is no such message.
        InstallationError: The extra `protobuf` is not installed.
    """
    return _message_types(text, tuple(sorted(named.items())), message)


@lru_cache(maxsize=64)
def _message_types(text: str, named: tuple[tuple[str, str], ...], message: str | None) -> ProtobufSchema:
    for module in ("google.protobuf", "grpc_tools"):
        check_extra(module, _USED_BY)
    main, files = _files(text, dict(named), message)
    pool = _pool(files)
    found = pool.FindFileByName(main).message_types_by_name
    if not found:
        raise SchemaError("the Protobuf schema has no message")
    if message is None:
        chosen = next(iter(found.values()))
    else:
        try:
            chosen = pool.FindMessageTypeByName(message.lstrip("."))
        except KeyError:
            chosen = None
        if chosen is None or chosen.file.name != main:
            names = ", ".join(one.full_name for one in found.values())
            raise SchemaError(f"the Protobuf schema has no message {message}; it has {names}", name=message)
    messages: dict[str, Message] = {}
    enums: dict[str, Enum] = {}
    _collect(chosen, messages, enums)
    return ProtobufSchema(chosen.full_name, _indexes(chosen), messages, enums)


def files_to_register(text: str, message: str | None) -> list[SchemaFile]:
    """Returns what to register of a schema: the files that it comes with, each after those that it imports, then itself.

    A registry takes one file, so a FileDescriptorSet is split up: into the file with the message, or else the last, and the
    files that this one imports. Other texts come alone.
    """
    data = _decoded(text)
    files = [] if data is None else _set_of(data)
    if not files:
        return [SchemaFile("", text)]
    by_name = {one.name: one for one in files}
    main = _main_of(files, message)
    used: dict[str, FileDescriptorProto] = {}
    _add_imports(main, by_name, used)
    return [
        SchemaFile("" if file is main else file.name, _encoded(file), tuple(name for name in file.dependency if name in used))
        for file in (*used.values(), main)
    ]


def inline_rules(text: str) -> list[str]:
    """Returns the fields of a schema that have rules of their own, in Confluent's options."""
    data = _decoded(text)
    if data is not None:
        return ["confluent.Meta (rules)"] if _has_rules(data) else []
    bare = _LITERALS.sub(lambda found: " " if found[0][0] == "/" else '""', text)
    return [f"{found[1] or 'the message'} (confluent.Meta, rules)" for found in _RULES.finditer(bare)]


def base64_of(data: bytes) -> str:
    """Returns the text of a file with descriptors."""
    return base64.b64encode(data).decode()


# Files


def _files(text: str, named: Mapping[str, str], message: str | None) -> tuple[str, Mapping[str, FileDescriptorProto]]:
    """Returns the name of the schema's own file, and all files."""
    for path in named:
        if path.startswith("/") or "\\" in path or not path.isprintable() or ".." in path.split("/"):
            raise SchemaError(f"{path!r} is not a valid import path", name=path)
    data = _decoded(text)
    files: dict[str, FileDescriptorProto] = {}
    texts: dict[str, str] = {}
    for path, used in named.items():
        decoded = _decoded(used)
        if decoded is None:
            texts[path] = used
        else:
            files[path] = _file_of(decoded, path)
    if data is None:
        main = _unused(_MAIN, named)
        texts[main] = text
    elif several := _set_of(data):
        files.update({one.name: one for one in several})
        main = _main_of(several, message).name
    else:
        own = _file_of(data, None)
        main = own.name = own.name or _unused(_MAIN, named)
        files[main] = own
    if texts:
        files.update(_compiled(texts, main, _with_known(files)))
    return main, _with_known(files)


def _unused(name: str, named: Mapping[str, str]) -> str:
    while name in named:
        name = f"_{name}"
    return name


def _decoded(text: str) -> bytes | None:
    """Returns the bytes of base64; None for other text. A .proto text has braces or quotes."""
    if not re.fullmatch(r"[A-Za-z0-9+/\s]+=*\s*", text):
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return None


def _set_of(data: bytes) -> list[FileDescriptorProto]:
    """Returns the files of a FileDescriptorSet; none if the bytes are something else."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(data).file)
    except DecodeError:
        return []
    return files if all(one.name and (one.message_type or one.enum_type or one.dependency) for one in files) else []


def _file_of(data: bytes, name: str | None) -> FileDescriptorProto:
    """Returns the file that a FileDescriptorProto describes, under the name by which it is imported."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(data)
    except DecodeError:
        raise SchemaError(f"{name or 'the Protobuf schema'} is neither .proto text nor a descriptor in base64") from None
    if name is not None:
        file.name = name
    return file


def _main_of(files: Sequence[FileDescriptorProto], message: str | None) -> FileDescriptorProto:
    """Returns the file with the message; the last one, which the others serve, if none is named."""
    for file in files if message is not None else ():
        package = f"{file.package}." if file.package else ""
        if message is not None and any(f"{message}.".startswith(f"{package}{one.name}.") for one in file.message_type):
            return file
    return files[-1]


def _is_known(name: str) -> bool:
    return name.startswith(_KNOWN) or name in _OWN


def _add_imports(
    file: FileDescriptorProto, by_name: Mapping[str, FileDescriptorProto], used: dict[str, FileDescriptorProto]
) -> None:
    """Adds the files that a file imports, after those that they import themselves."""
    for name in file.dependency:
        if name in by_name and name not in used and not _is_known(name):
            _add_imports(by_name[name], by_name, used)
            used[name] = by_name[name]


def _encoded(file: FileDescriptorProto) -> str:
    return base64_of(file.SerializeToString(deterministic=True))


def _with_known(files: Mapping[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """Returns the files with all files that registries know and these import."""
    found = dict(files)
    waiting = [name for one in files.values() for name in one.dependency]
    while waiting:
        name = waiting.pop()
        if name not in found and (known := _known_file(name)) is not None:
            found[name] = known
            waiting += known.dependency
    return found


def _known_file(name: str) -> FileDescriptorProto | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in _OWN:
        return _compiled({name: _OWN[name]}, name, {})[name]
    if not name.startswith(_KNOWN):
        return None
    try:
        module: Any = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError:
        return None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


# The compiler


def _compiled(texts: Mapping[str, str], main: str, others: Mapping[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """Returns what the compiler makes of .proto texts and of all that they import. It runs in a process of its own."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    texts = {**{name: text for name, text in _OWN.items() if any(name in one for one in texts.values())}, **texts}
    with TemporaryDirectory(prefix="spark-kafka-sink-") as made:
        folder = Path(made)
        for path, text in texts.items():
            file = folder / "texts" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        options = ["-Itexts", "--include_imports", "--descriptor_set_out=found"]
        known = {**others, **_known_imports(texts, others)}
        if known:
            (folder / "others").write_bytes(FileDescriptorSet(file=list(known.values())).SerializeToString())
            options.append("--descriptor_set_in=others")
        _run([sys.executable, "-m", "grpc_tools.protoc", *options, *texts], folder, main)
        return {one.name: one for one in FileDescriptorSet.FromString((folder / "found").read_bytes()).file}


def _known_imports(texts: Mapping[str, str], others: Mapping[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """Returns the files of google/type that texts import, which the compiler does not bring with it."""
    found = {name for text in texts.values() for name in re.findall(r"""["'](google/type/\w+\.proto)["']""", text)}
    files = {name: file for name in found if name not in others and (file := _known_file(name)) is not None}
    return {name: file for name, file in _with_known(files).items() if not name.startswith("google/protobuf/")}


def _run(command: Sequence[str], folder: Path, main: str) -> None:
    """Raises SchemaError with what the compiler says if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise SchemaError(f"the Protobuf compiler did not finish within {DEADLINE_S:g} s") from None
    except OSError as error:
        raise SchemaError(f"the Protobuf compiler cannot be started: {error.strerror}") from None
    if done.returncode == 0:
        return
    said = done.stderr.decode(errors="replace")
    missing = _NOT_FOUND.search(said)
    if missing is not None:
        raise _unknown_import(missing[1])
    lines = [line.removeprefix("texts/") for line in said.splitlines() if not _REMARK.search(line)]
    text = quoted("\n".join(lines).replace(f"{main}:", "line "), most=1000) or f"it ended with {done.returncode}"
    raise SchemaError(f"the text is not a valid Protobuf schema: {text}")


def _unknown_import(name: str) -> SchemaError:
    return SchemaError(
        f"the Protobuf schema imports {name}: register it, and name it in the option value.schema.references", name=name
    )


# Descriptors


def _pool(files: Mapping[str, FileDescriptorProto]) -> Any:
    """Returns a pool with all files, each one after those that it imports."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool: Any = DescriptorPool()
    added: set[str] = set()

    def add(name: str, importing: tuple[str, ...]) -> None:
        if name in added:
            return
        if name not in files:
            raise _unknown_import(name)
        if name in importing:
            raise SchemaError(f"the Protobuf schema imports {name} in a circle", name=name)
        for used in files[name].dependency:
            add(used, (*importing, name))
        added.add(name)
        try:
            pool.AddSerializedFile(files[name].SerializeToString())
        except TypeError as error:
            raise SchemaError(f"{name} is not a valid Protobuf schema: {quoted(str(error))}") from None

    for name in files:
        add(name, ())
    return pool


def _indexes(message: Descriptor) -> tuple[int, ...]:
    around = message.containing_type
    if around is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    return (*_indexes(around), [one.name for one in around.nested_types].index(message.name))


def _collect(message: Descriptor, messages: dict[str, Message], enums: dict[str, Enum]) -> None:
    """Adds a message and all types that it uses."""
    from google.protobuf.descriptor_pb2 import DescriptorProto

    if message.full_name in messages:
        return
    name = message.full_name
    messages[name] = Message(name, ())  # so that a recursive one ends
    own = DescriptorProto()
    message.CopyToProto(own)
    by_number = {one.number: one for one in own.field}
    fields = sorted(message.fields, key=lambda one: one.number)
    messages[name] = Message(
        name, tuple(_field(one, by_number[one.number]) for one in fields), bool(message.GetOptions().map_entry)
    )
    for field in fields:
        if field.message_type is not None:
            _collect(field.message_type, messages, enums)
        if field.enum_type is not None:
            values = tuple((value.name, value.number) for value in field.enum_type.values)
            enums[field.enum_type.full_name] = Enum(field.enum_type.full_name, values)


def _field(field: FieldDescriptor, own: FieldDescriptorProto) -> Field:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Proto

    kind = Proto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if kind == "group":
        raise SchemaError(f"{field.full_name}: groups are not supported; use a message", field=field.full_name)
    oneof = field.containing_oneof
    return Field(
        field.name,
        field.number,
        {"message": MESSAGE, "enum": ENUM}.get(kind, kind),
        field.message_type.full_name
        if field.message_type is not None
        else ""
        if field.enum_type is None
        else field.enum_type.full_name,
        repeated=own.label == Proto.LABEL_REPEATED,
        required=own.label == Proto.LABEL_REQUIRED,
        presence=own.label != Proto.LABEL_REPEATED and field.has_presence,
        packed=own.label == Proto.LABEL_REPEATED and field.is_packed,
        oneof="" if oneof is None or own.proto3_optional else oneof.name,
    )


def _has_rules(data: bytes) -> bool:
    """Returns whether a descriptor has Confluent's options with rules, which is field 4 of the option 1088."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message_factory import GetMessageClass

    files = _set_of(data) or [_file_of(data, None)]
    if not any("confluent/meta.proto" in one.dependency for one in files):
        return False
    pool = _pool(_with_known({"meta": _needs_meta()}))
    reader = GetMessageClass(pool.FindMessageTypeByName(FileDescriptorSet.DESCRIPTOR.full_name))
    extensions = [
        pool.FindExtensionByName(f"confluent.{name}_meta") for name in ("file", "message", "field", "enum", "enum_value")
    ]
    found: Any = reader.FromString(FileDescriptorSet(file=files).SerializeToString())
    return _uses_rules(found, extensions)


def _needs_meta() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto(name="meta", dependency=["confluent/meta.proto"])


def _uses_rules(message: Any, extensions: Sequence[Any]) -> bool:
    """Returns whether a descriptor, or any one inside of it, has rules."""
    for field, value in message.ListFields():
        if field in extensions and value.rules:
            return True
        if field.message_type is not None and not field.is_extension:
            inside = value if isinstance(value, Sequence) or hasattr(value, "append") else [value]
            if any(_uses_rules(one, extensions) for one in inside):
                return True
    return False
