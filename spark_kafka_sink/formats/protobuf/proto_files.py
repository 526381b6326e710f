"""Finds the files of a Protobuf schema: compiles .proto text, decodes descriptors, and adds the files that every registry knows.

It needs Protobuf's library and compiler, so it runs on the driver.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.schema_format import REFERENCE_IT, SchemaFile
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.peer_text import quoted

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

DEADLINE_S: Final = 60.0
_USED_BY: Final = "the format protobuf"
_MAIN: Final = "schema.proto"
_NOT_FOUND: Final = re.compile(r'^(?:[^:\n]+:\d+:\d+: )?"?([^\s":]+)"?: File not found\.', re.MULTILINE)
# What never ends is a literal, too: if it were none, each character of it might begin another one.
_LITERAL: Final = r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?"""
LITERALS: Final = re.compile(_LITERAL, re.DOTALL)
# Confluent's registry turns descriptors into text with this option, which the compiler refuses.
_MAP_ENTRY: Final = re.compile(rf"{_LITERAL}|\boption\s+(map_entry)\s*=\s*true\s*;", re.DOTALL)
_LAST_NUMBER: Final = 2**29 - 1  # of a field
_NUMBER: Final = re.compile(r"\b(?:0[xX]([0-9a-fA-F]+)|0([0-7]+)|([1-9][0-9]{0,8}))\b")
_REMARK: Final = re.compile(r"^WARNING: |^[IWE]\d{4} |: warning: ")
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


def check_libraries() -> None:
    """Raises InstallationError if the extra `protobuf` is not installed."""
    for module in ("google.protobuf", "grpc_tools"):
        check_extra(module, _USED_BY)


def files_of(text: str, message: str | None) -> Sequence[SchemaFile]:
    """Returns what to register of a schema: the files that it imports, each after those that it uses, and its own.

    A registry takes one file, so a FileDescriptorSet is split up. Its own file is the one with the message, or else the last.
    Other texts come alone: what they import is in the registry.
    """
    data = decoded(text)
    if data is not None:
        check_libraries()
    files = [] if data is None else set_of(data)
    if not files:
        return (SchemaFile("", text),)
    by_name = {one.name: one for one in files}
    main = _main_of(files, message)
    used = {
        one.name: one for one in in_order(main.name, by_name)[:-1] if not one.name.startswith(_KNOWN) and one.name not in _OWN
    }
    uses = {one.name: tuple(name for name in one.dependency if name in used) for one in (*used.values(), main)}
    return [
        *(SchemaFile(name, _encoded(one), uses[name]) for name, one in used.items()),
        SchemaFile("", _encoded(main), uses[main.name]),
    ]


def base64_of(data: bytes) -> str:
    """Returns the text of a file with descriptors."""
    return base64.b64encode(data).decode()


def files_by_name(text: str, named: Mapping[str, str], message: str | None) -> tuple[str, Mapping[str, FileDescriptorProto]]:
    """Returns the name of the schema's own file, and all files."""
    for path in named:
        # The compiler takes it as an argument, and it becomes the name of a file.
        is_relative = {"", ".", ".."}.isdisjoint(path.split("/")) and (path[:1].isalnum() or path[:1] == "_")
        if not is_relative or "\\" in path or not path.isprintable():
            raise SchemaError(f"{quoted(repr(path))} is not a valid import path", name=path)
    data = decoded(text)
    files: dict[str, FileDescriptorProto] = {}
    texts: dict[str, str] = {}
    for path, used in named.items():
        descriptor = decoded(used)
        if descriptor is None:
            texts[path] = used
        else:
            files[path] = file_of(descriptor, path)
    if data is None:
        main = _unused(_MAIN, named)
        texts[main] = text
    elif several := set_of(data):
        files.update({one.name: one for one in several})
        main = _main_of(several, message).name
    else:
        own = file_of(data, None)
        main = own.name = own.name or _unused(_MAIN, named)
        files[main] = own
    if texts:
        files.update(_compiled(texts, main, with_known(files)))
    return main, with_known(files)


def _unused(name: str, named: Mapping[str, str]) -> str:
    while name in named:
        name = f"_{name}"
    return name


def decoded(text: str) -> bytes | None:
    """Returns the bytes of base64; None for other text. A .proto text has braces or quotes."""
    if not re.fullmatch(r"[A-Za-z0-9+/\s]++=*+\s*+", text):
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return None


def set_of(data: bytes) -> list[FileDescriptorProto]:
    """Returns the files of a FileDescriptorSet; none if the bytes are something else."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(data).file)
    except DecodeError:
        return []
    # The name of a file is where a set has its files. As a file, a name has none itself.
    return files if all(one.name for one in files) else []


def file_of(data: bytes, name: str | None) -> FileDescriptorProto:
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
    wanted = f"{(message or '').lstrip('.')}."
    for file in files:
        package = f"{file.package}." if file.package else ""
        if any(wanted.startswith(f"{package}{one.name}.") for one in file.message_type):
            return file
    return files[-1]


def in_order(main: str, files: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Returns a file after all files that it imports. Missing ones are left out."""
    found: dict[str, FileDescriptorProto] = {}

    def add(name: str, importing: tuple[str, ...]) -> None:
        if name in found or name not in files:
            return
        if name in importing:
            raise SchemaError(f"the Protobuf schema imports {name} in a circle", name=name)
        for used in files[name].dependency:
            add(used, (*importing, name))
        found[name] = files[name]

    try:
        add(main, ())
    except RecursionError:
        raise SchemaError("the files of the Protobuf schema import each other too deeply") from None
    return list(found.values())


def _encoded(file: FileDescriptorProto) -> str:
    return base64_of(file.SerializeToString(deterministic=True))


def with_known(files: Mapping[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
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
    check_extra("grpc_tools", _USED_BY)
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    texts = {**{name: text for name, text in _OWN.items() if any(name in one for one in texts.values())}, **texts}
    mark = _unused_number(texts.values())
    with TemporaryDirectory(prefix="spark-kafka-sink-") as made:
        folder = Path(made)
        for path, text in texts.items():
            file = folder / "texts" / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(_with_marks(text, mark), encoding="utf-8", errors="replace")
            except OSError as error:
                raise SchemaError(f"the Protobuf compiler cannot read {quoted(path)}: {error.strerror}", name=path) from None
        options = ["-Itexts", "--include_imports", "--descriptor_set_out=found"]
        known = {**others, **_known_imports(texts, others)}
        if known:
            (folder / "others").write_bytes(FileDescriptorSet(file=list(known.values())).SerializeToString())
            options.append("--descriptor_set_in=others")
        _run([sys.executable, "-m", "grpc_tools.protoc", *options, *texts], folder, main)
        files = {one.name: one for one in FileDescriptorSet.FromString((folder / "found").read_bytes()).file}
        for path in texts:
            for message in files[path].message_type if path in files else ():
                _order_nested(message, mark)
        return files


def _unused_number(texts: Iterable[str]) -> int:
    """Returns a field number that no text has, so that a reserved number of a text is never taken for a mark."""
    found = [number for text in texts for number in _NUMBER.findall(text)]
    used = {int(hexa, 16) if hexa else int(octal, 8) if octal else int(decimal) for hexa, octal, decimal in found}
    return next(number for number in range(_LAST_NUMBER, 0, -1) if number not in used)


def _with_marks(text: str, mark: int) -> str:
    """Returns the text with a reserved number in each message that is declared as the entry of a map."""
    return _MAP_ENTRY.sub(lambda found: found[0] if found[1] is None else f"reserved {mark};", text)


def _order_nested(message: DescriptorProto, mark: int) -> None:
    """Moves the messages that the compiler made of maps and groups behind those of the text, and replaces the marks of entries.

    Confluent's readers count the messages of the text. For clients that ask for descriptors, its registry has this order too.
    """
    made = {one.type_name.rpartition(".")[2] for one in message.field if one.type == one.TYPE_GROUP}
    made |= {one.name for one in message.nested_type if one.options.map_entry}
    for one in message.nested_type:
        _order_nested(one, mark)
        if any(numbers.start == mark for numbers in one.reserved_range):
            del one.reserved_range[:]
            one.options.map_entry = True
    nested = sorted(message.nested_type, key=lambda one: one.name in made)
    del message.nested_type[:]
    message.nested_type.extend(nested)


def _known_imports(texts: Mapping[str, str], others: Mapping[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """Returns the files of google/type that texts import, which the compiler does not bring with it."""
    found = {name for text in texts.values() for name in re.findall(r"""["'](google/type/\w+\.proto)["']""", text)}
    files = {name: file for name in found if name not in others and (file := _known_file(name)) is not None}
    return {name: file for name, file in with_known(files).items() if not name.startswith("google/protobuf/")}


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
        raise unknown_import(missing[1])
    if "--experimental_editions" in said:  # compilers before protobuf 27
        raise SchemaError("the text has an edition, which needs protobuf 6 or newer on the driver")
    lines = [line.removeprefix("texts/") for line in said.splitlines() if not _REMARK.search(line)]
    said = re.sub(rf"\b{re.escape(main)}:(?: |(?=(\d)))", lambda found: "line " if found[1] else "", "\n".join(lines))
    text = quoted(said, most=1000) or f"it ended with {done.returncode}"
    raise SchemaError(f"the text is not a valid Protobuf schema: {text}")


def unknown_import(name: str) -> SchemaError:
    return SchemaError(f"the Protobuf schema imports {name}: {REFERENCE_IT}", name=name)
