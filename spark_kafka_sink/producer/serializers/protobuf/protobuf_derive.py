"""Derives a Protobuf message from the type of a column, as .proto text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.producer.serializers.arrays import is_binary, is_list, is_text, is_uuid

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDENT: Final = "  "
_OWN_NUMBERS: Final = range(19_000, 20_000)  # Protobuf keeps them for itself


def derive(kind: pa.DataType, name: str) -> str:
    """Derives a message, as proto3 text.

    Fields are numbered in the order of the columns. A nullable field is `optional`. A nested struct is a message inside the one
    around it, named after its field. The field metadata `comment` becomes a comment.

    Args:
        kind: type of the column, a struct.
        name: name of the message, with its package if it has one.

    Raises:
        SchemaError: Protobuf has no such name or type. The text names each column.
    """
    parts = name.split(".")
    if not all(NAME.fullmatch(part) for part in parts):
        raise SchemaError(f"{name!r} is not a valid Protobuf name: each part must match {NAME.pattern}", name=name)
    if not pa.types.is_struct(kind):
        raise SchemaError(f"a Protobuf value is a message: use a struct or several columns instead of {kind}", type=str(kind))
    walk = _Walk(set(parts))
    body = walk.message(kind, parts[-1], "")
    if walk.problems:
        lines = "".join(f"\n  {path}: {problem}" for path, problem in walk.problems)
        raise SchemaError(f"Protobuf cannot hold the columns:{lines}", fields=tuple(path for path, _ in walk.problems))
    head = ['syntax = "proto3";', *([f"package {'.'.join(parts[:-1])};"] if len(parts) > 1 else [])]
    return "\n".join([*head, *(f'import "{path}";' for path in sorted(walk.imports)), "", *body, ""])


class _Walk:
    """Walks over a type. It keeps the imports, and the columns that Protobuf cannot hold."""

    def __init__(self, around: set[str]) -> None:
        self.problems: list[tuple[str, str]] = []
        self.imports: set[str] = set()
        self._around = around

    def message(self, kind: pa.DataType, name: str, path: str) -> list[str]:
        """Returns the lines of a message."""
        members = [kind.field(index) for index in range(kind.num_fields)]
        names = [member.name for member in members]
        outer, self._around = self._around, {*self._around, *names}
        entries: dict[str, str] = {}
        for member in members:
            if pa.types.is_map(member.type):
                entries.setdefault(_entry(member.name), member.name)
        taken = {name, *names, *entries}
        in_json: dict[str, str] = {}
        inside: list[str] = []
        lines: list[str] = []
        for index, member in enumerate(members):
            step = f"{path}.{member.name}"
            self._check_name(member.name, step, in_json)
            if member.name in entries:
                self._problem(step, f"the message of the entries of {entries[member.name]} has this name: rename one of them")
            elif pa.types.is_map(member.type) and (other := entries[_entry(member.name)]) != member.name:
                self._problem(step, f"the messages of the entries of {other} and of this map have one name: rename one of them")
            elif pa.types.is_map(member.type) and NAME.fullmatch(member.name) and not NAME.fullmatch(_entry(member.name)):
                self._problem(step, f"{_entry(member.name)}, the message of its entries, is not a valid Protobuf name: rename it")
            found, repeated = self._field_type(member.type, member.name, step, taken, inside)
            lines += _comment(member)
            number = index + 1 if index + 1 < _OWN_NUMBERS.start else index + 1 + len(_OWN_NUMBERS)
            label = "repeated " if repeated else "optional " if member.nullable and not found.startswith("map<") else ""
            lines.append(f"{label}{found} {member.name} = {number};")
        self._around = outer
        return [f"message {name} {{", *(f"{_INDENT}{line}" for line in (*inside, *lines)), "}"]

    def _check_name(self, name: str, path: str, in_json: dict[str, str]) -> None:
        """Notes a name that a field cannot have. `in_json` has the earlier ones by their names in JSON."""
        if not NAME.fullmatch(name):
            valid = re.sub(r"[^A-Za-z0-9_]", "_", name)
            valid = valid if NAME.fullmatch(valid) else f"_{valid}"
            self._problem(path, f"is not a valid Protobuf name: rename it, for example to {valid}")
        own = _in_json(name)
        other = in_json.get(own)
        in_json[own] = name
        if other == name:
            self._problem(path, "two columns have this name")
        elif other is not None:
            self._problem(path, f"its name in JSON is that of {other}, which proto3 does not allow: rename one of them")

    def _field_type(self, kind: pa.DataType, name: str, path: str, taken: set[str], inside: list[str]) -> tuple[str, bool]:
        """Returns the type of a field, and whether it is repeated. Adds messages to those inside."""
        if is_list(kind):
            element = kind.value_type
            if is_list(element) or pa.types.is_map(element):
                self._problem(path, "Protobuf has no arrays of arrays or maps: wrap the inner ones in a struct")
                return "", True
            return self._type(element, name, f"{path}[]", taken, inside), True
        if pa.types.is_map(kind):
            key, value = kind.key_type, kind.item_type
            if is_list(value) or pa.types.is_map(value):
                self._problem(path, "Protobuf has no maps of arrays or maps: wrap the inner ones in a struct")
                return "", False
            if not (is_text(key) or pa.types.is_integer(key) or pa.types.is_boolean(key)):
                self._problem(path, f"the keys of a map are {key}, must be string, a whole number or boolean")
            keys = self._type(key, name, f"{path}[]", taken, inside)
            return f"map<{keys}, {self._type(value, name, f'{path}[]', taken, inside)}>", False
        return self._type(kind, name, path, taken, inside), False

    def _type(self, kind: pa.DataType, name: str, path: str, taken: set[str], inside: list[str]) -> str:
        """Returns the type of one value."""
        if pa.types.is_dictionary(kind):
            return self._type(kind.value_type, name, path, taken, inside)
        if pa.types.is_struct(kind):
            message = _unused(_camel(name), taken)
            taken.add(message)
            inside += self.message(kind, message, path)
            return message
        for fits, found in _TYPES:
            if fits(kind):
                return self._imported(found) if found.startswith("google.") else found
        self._problem(path, f"Protobuf has no type for {kind}: cast it, for example to string")
        return ""

    def _imported(self, message: str) -> str:
        """Returns how to write the name of one of Protobuf's own messages."""
        self.imports.add(f"{message.replace('.', '/').lower()}.proto")
        return f".{message}" if "google" in self._around else message

    def _problem(self, path: str, problem: str) -> None:
        self.problems.append((path.lstrip("."), problem))


def _comment(field: pa.Field) -> list[str]:
    """Returns the lines of a field's comment, and the unit of a number that is none."""
    text = (field.metadata or {}).get(b"comment", b"").decode(errors="replace")
    kind = field.type.value_type if is_list(field.type) else field.type
    unit = next((unit for fits, unit in _UNITS if fits(kind)), None)
    lines = [*text.splitlines(), *([unit] if unit else [])]
    return [f"// {''.join(each if each.isprintable() else ' ' for each in line)}".rstrip() for line in lines]


def _camel(name: str) -> str:
    """Returns the name in CamelCase, which has no underscores but before a digit."""
    text = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return text if NAME.fullmatch(text) else f"_{text}"


def _in_json(name: str) -> str:
    """Returns the name of a field in JSON, as Protobuf's compiler makes it."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _entry(name: str) -> str:
    """Returns the name that Protobuf's compiler gives to the message of a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _unused(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}{number}"
    return found


def _is_local(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


_UNITS: Final[Sequence[tuple[Callable[[pa.DataType], bool], str]]] = (
    (pa.types.is_date, "Days since 1970-01-01."),
    (pa.types.is_time, "Nanoseconds since midnight."),
    (_is_local, "Microseconds since 1970-01-01T00:00:00, without a time zone."),
)
_TYPES: Final[Sequence[tuple[Callable[[pa.DataType], bool], str]]] = (
    (pa.types.is_boolean, "bool"),
    (lambda kind: pa.types.is_signed_integer(kind) and kind.bit_width < 64, "int32"),
    (pa.types.is_signed_integer, "int64"),
    (lambda kind: pa.types.is_unsigned_integer(kind) and kind.bit_width < 64, "uint32"),
    (pa.types.is_unsigned_integer, "uint64"),
    (lambda kind: kind in (pa.float16(), pa.float32()), "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (is_binary, "bytes"),
    (lambda kind: pa.types.is_decimal(kind) and kind.scale >= 0, "string"),
    (is_uuid, "string"),
    (pa.types.is_date, "int32"),
    (pa.types.is_time, "int64"),
    (_is_local, "int64"),
    (pa.types.is_timestamp, "google.protobuf.Timestamp"),
    (pa.types.is_duration, "google.protobuf.Duration"),
)
