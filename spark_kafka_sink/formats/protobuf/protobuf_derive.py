"""Derives a Protobuf message from the type of a column, as .proto text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.nodes import Derivation, check_full_name, comment_of, unused
from spark_kafka_sink.formats.schema_format import NAME
from spark_kafka_sink.producer.serializers.arrays import is_binary, is_list, is_text, is_uuid

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_OWN_NUMBERS: Final = range(19_000, 20_000)  # Protobuf keeps them for itself
_LAST_NUMBER: Final = 2**29 - 1


def derive(kind: pa.DataType, name: str, latest: tuple[str, Descriptor] | None = None) -> str:
    """Derives a message, as proto3 text.

    A field has the number that its name has in the newest version, also in nested messages. New names follow in the order of the
    columns, above all numbers that are used or reserved. A name without a column becomes reserved.

    A nullable field is `optional`. A nested struct is a message inside the one around it, named after its field. The field
    metadata `comment` becomes a comment.

    Args:
        kind: type of the column, a struct.
        name: name of the message, with its package if it has one.
        latest: the version of the schema before this one, with what it is in words.

    Raises:
        SchemaError: Protobuf has no such name or type, or no number for it. The text names each column.
    """
    check_full_name(name, "Protobuf")
    parts = name.split(".")
    if not pa.types.is_struct(kind):
        raise SchemaError(f"a Protobuf value is a message: use a struct or several columns instead of {kind}", type=str(kind))
    walk = _Walk(set(parts), latest)
    body = walk.message(kind, parts[-1], "")
    walk.end("Protobuf")
    head = ['syntax = "proto3";', *([f"package {'.'.join(parts[:-1])};"] if len(parts) > 1 else [])]
    return "\n".join([*head, *(f'import "{path}";' for path in sorted(walk.imports)), "", *body, ""])


class _Walk(Derivation):
    """Walks over a type. It keeps the imports."""

    def __init__(self, around: set[str], latest: tuple[str, Descriptor] | None) -> None:
        super().__init__()
        self.imports: set[str] = set()
        self._around = around
        self._latest = latest

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
        lines: list[tuple[int, list[str]]] = []
        numbers, reserved = self._numbers(names, path)
        for member, number in zip(members, numbers, strict=True):
            step = f"{path}.{member.name}"
            self._check_name(member.name, step, in_json)
            if member.name in entries:
                self.problem(step, f"the message of the entries of {entries[member.name]} has this name: rename one of them")
            elif pa.types.is_map(member.type) and (other := entries[_entry(member.name)]) != member.name:
                self.problem(step, f"the messages of the entries of {other} and of this map have one name: rename one of them")
            elif pa.types.is_map(member.type) and NAME.fullmatch(member.name) and not NAME.fullmatch(_entry(member.name)):
                self.problem(step, f"{_entry(member.name)}, the message of its entries, is not a valid Protobuf name: rename it")
            found, repeated = self._field_type(member.type, member.name, step, taken, inside)
            label = "repeated " if repeated else "optional " if member.nullable and not found.startswith("map<") else ""
            lines.append((number, [*_comment(member), f"{label}{found} {member.name} = {number};"]))
        self._around = outer
        # In the order of their numbers, so that other orders of the columns are no other schemas.
        fields = [line for _, field in sorted(lines, key=lambda one: one[0]) for line in field]
        return [f"message {name} {{", *(f"  {line}" for line in (*reserved, *inside, *fields)), "}"]

    def _numbers(self, names: Sequence[str], path: str) -> tuple[list[int], list[str]]:
        """Returns the number of each field of a message, and the lines that reserve what goes."""
        version, root = self._latest or ("", None)
        latest = _message_at(root, path)
        known = {} if latest is None else {one.name: one.number for one in latest.fields}
        ranges, reserved = _reserved(latest)
        highest = max((*known.values(), *(end - 1 for _, end in ranges)), default=0)
        found = []
        for name in names:
            if name not in known:
                highest = highest + 1 if highest + 1 not in _OWN_NUMBERS else _OWN_NUMBERS.stop
                if name in reserved:
                    self.problem(f"{path}.{name}", f"{version} reserves this name: rename the column, or give a schema")
                elif highest > _LAST_NUMBER:
                    self.problem(f"{path}.{name}", f"{version} leaves no higher number for it: give a schema that has one")
            found.append(known.get(name, highest))
        goes = sorted((known[name], name) for name in known.keys() - set(names))
        ranges += [(number, number + 1) for number, _ in goes]
        quoted = [f'"{name}"' for name in (*reserved, *(name for _, name in goes))]
        lines = [", ".join(map(_range_text, ranges)), ", ".join(quoted)]
        return found, [f"reserved {line};" for line in lines if line]

    def _check_name(self, name: str, path: str, in_json: dict[str, str]) -> None:
        """Notes a name that a field cannot have. `in_json` has the earlier ones by their names in JSON."""
        self.check_name(name, path, "Protobuf")
        first, *others = name.split("_")
        own = first + _joined(others)  # as Protobuf's compiler makes it
        other = in_json.get(own)
        in_json[own] = name
        if other == name:
            self.problem(path, "two columns have this name")
        elif other is not None:
            self.problem(path, f"its name in JSON is that of {other}, which proto3 does not allow: rename one of them")

    def _field_type(self, kind: pa.DataType, name: str, path: str, taken: set[str], inside: list[str]) -> tuple[str, bool]:
        """Returns the type of a field, and whether it is repeated. Adds messages to those inside."""
        if is_list(kind):
            element = kind.value_type
            if is_list(element) or pa.types.is_map(element):
                self.problem(path, "Protobuf has no arrays of arrays or maps: wrap the inner ones in a struct")
                return "", True
            return self._type(element, name, f"{path}[]", taken, inside), True
        if pa.types.is_map(kind):
            key, value = kind.key_type, kind.item_type
            if is_list(value) or pa.types.is_map(value):
                self.problem(path, "Protobuf has no maps of arrays or maps: wrap the inner ones in a struct")
                return "", False
            if not (is_text(key) or pa.types.is_integer(key) or pa.types.is_boolean(key)):
                self.problem(path, f"the keys of a map are {key}, must be string, a whole number or boolean")
            keys = self._type(key, name, f"{path}[]", taken, inside)
            return f"map<{keys}, {self._type(value, name, f'{path}[]', taken, inside)}>", False
        return self._type(kind, name, path, taken, inside), False

    def _type(self, kind: pa.DataType, name: str, path: str, taken: set[str], inside: list[str]) -> str:
        if pa.types.is_dictionary(kind):
            return self._type(kind.value_type, name, path, taken, inside)
        if pa.types.is_struct(kind):
            camel = _joined(name.split("_"))
            message = unused(camel if NAME.fullmatch(camel) else f"_{camel}", taken)
            inside += self.message(kind, message, path)
            return message
        for fits, found in _TYPES:
            if fits(kind):
                if not found.startswith("google."):
                    return found
                self.imports.add(f"{found.replace('.', '/').lower()}.proto")
                return f".{found}" if "google" in self._around else found
        self.problem(path, f"Protobuf has no type for {kind}: cast it, for example to string")
        return ""


def _message_at(root: Descriptor | None, path: str) -> Descriptor | None:
    """Returns the message of a struct inside of another one. For a map it is that of its values."""
    message = root
    for step in path.replace("[]", "").split(".")[1:]:
        field: FieldDescriptor | None = None if message is None else message.fields_by_name.get(step)
        message = None if field is None else field.message_type
        if message is not None and message.GetOptions().map_entry:
            message = message.fields_by_name["value"].message_type
    return message


def _reserved(message: Descriptor | None) -> tuple[list[tuple[int, int]], list[str]]:
    """Returns the numbers, each with an end that is not reserved, and the names that no new field of a message may have."""
    if message is None:
        return [], []
    from google.protobuf.descriptor_pb2 import DescriptorProto

    own = DescriptorProto()
    message.CopyToProto(own)
    return [(one.start, one.end) for one in (*own.reserved_range, *own.extension_range)], [
        one for one in own.reserved_name if NAME.fullmatch(one)
    ]


def _range_text(numbers: tuple[int, int]) -> str:
    start, last = numbers[0], numbers[1] - 1
    return str(start) if start == last else f"{start} to {'max' if last == _LAST_NUMBER else last}"


def _comment(field: pa.Field) -> list[str]:
    """Returns the lines of a field's comment, and the unit of a number that is none."""
    kind = field.type.value_type if is_list(field.type) else field.type
    unit = next((unit for fits, unit in _UNITS if fits(kind)), None)
    lines = [*comment_of(field).splitlines(), *([unit] if unit else [])]
    return [f"// {''.join(each if each.isprintable() else ' ' for each in line)}".rstrip() for line in lines]


def _entry(name: str) -> str:
    """Returns the name that Protobuf's compiler gives to the message of a map's entries."""
    return _joined(name.split("_")) + "Entry"


def _joined(parts: Sequence[str]) -> str:
    """Returns the parts of a name in CamelCase, which has no underscores but before a digit."""
    return "".join(part[:1].upper() + part[1:] for part in parts)


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
