"""Parses Avro schemas to a tree of types.

The rules are those of Avro 1.12: names have a namespace, a name is defined once, and a logical type that is unknown or does not
suit its type is ignored. A recursive schema becomes a tree with a cycle, so types are compared by identity.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.schema_format import NAME, REFERENCE_IT

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MISSING: Final = object()
"""The default of a field that has none, because None is the JSON null."""

# A schema of a registry is not trusted: what is computed for it, and the bytes of a value, must have a limit.
_LARGEST_FIXED: Final = 2**31 - 1
_MOST_DIGITS: Final = 1000
_LARGEST_DECIMAL: Final = 1024

# The types that each logical type may have. Decimals and UUIDs have more conditions.
_LOGICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **{f"{local}timestamp-{unit}": ("long",) for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
}


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type. Precision and scale are those of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})" if self.name == "decimal" else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    kind: str
    logical: Logical | None = None

    def __str__(self) -> str:
        return self.kind if self.logical is None else f"{self.kind} ({self.logical})"


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    name: str
    size: int
    logical: Logical | None = None

    def __str__(self) -> str:
        return f"fixed({self.size})" if self.logical is None else f"fixed({self.size}) ({self.logical})"


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    name: str
    symbols: Mapping[str, int]  # each with its place

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: AvroType

    def __str__(self) -> str:
        return f"array of {self.items}"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    values: AvroType

    def __str__(self) -> str:
        return f"map of {self.values}"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[AvroType, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.branches))}]"

    @property
    def null(self) -> int | None:
        """Index of the branch null."""
        return next((index for index, branch in enumerate(self.branches) if is_null(branch)), None)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a record.

    Attributes:
        default: JSON value of the default; MISSING if there is none.
    """

    name: str
    type: AvroType
    default: Any = MISSING


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A record. Its fields are appended after it is made, because they may name it."""

    name: str
    fields: list[Field] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        return f"record {self.name}"


AvroType = Primitive | Fixed | Enum | Array | Map | Union | Record
_Named = Fixed | Enum | Record
_Type = TypeVar("_Type", Fixed, Enum, Record)


def parse(text: str, named: Mapping[str, str] = MappingProxyType({})) -> AvroType:
    """Parses a schema.

    Args:
        text: the schema as JSON; the name of a primitive type may stand without quotes.
        named: the schemas of a registry that the schema uses, by the names of the references. Their types are known by their
            own names, as in Java's AvroSchema.

    Raises:
        SchemaError: The text is not a valid schema. The error names the place.
    """
    try:
        return _Parser(named).parsed(_json(text), "", "")
    except RecursionError:
        raise SchemaError("the Avro schema is nested too deeply") from None


def full_name(schema: AvroType) -> str | None:
    """Returns the name of a record, enum or fixed with its namespace; None: the type has no name."""
    return schema.name if isinstance(schema, _Named) else None


def is_null(schema: AvroType) -> bool:
    return isinstance(schema, Primitive) and schema.kind == "null"


def _json(text: str) -> Any:
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except ValueError as error:
        raise SchemaError(f"the Avro schema is not valid JSON: {error}") from None


class _Parser:
    """Parses one schema. It keeps the types that have a name, first those of the schemas that others refer to."""

    def __init__(self, named: Mapping[str, str]) -> None:
        first: dict[str, str] = {}
        for name, text in named.items():
            first.setdefault(text, name)  # two references may be to one schema
        self._unparsed = {name: text for text, name in first.items()}
        self._known: dict[str, AvroType] = {}
        while self._unparsed:  # each may come before those that it uses
            self._define_one(next(iter(self._unparsed)))

    def _define_one(self, reference: str) -> None:
        text = self._unparsed.pop(reference)
        try:
            self.parsed(_json(text), "", "")
        except SchemaError as error:
            raise SchemaError(f"reference {_shown(reference)}: {error.message}", **error.facts) from None

    def parsed(self, node: Any, namespace: str, path: str) -> AvroType:
        """Returns a type. `namespace` is that of the type around it. `path` leads to it, for errors."""
        if isinstance(node, str):
            return Primitive(node) if node in PRIMITIVES else self._reference(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path)
        if not isinstance(node, dict):
            raise _invalid(path, f"{_shown(node)} is not a type")
        kind = node.get("type")
        if not isinstance(kind, str):
            raise _invalid(path, "has no type" if kind is None else f"its type is {_shown(kind)}, must be the name of a type")
        if kind in PRIMITIVES:
            return Primitive(kind, _logical(node, kind, None, path))
        if kind == "array":
            return Array(self.parsed(_required(node, "items", path), namespace, f"{path}[]"))
        if kind == "map":
            return Map(self.parsed(_required(node, "values", path), namespace, f"{path}[]"))
        if kind in ("record", "error"):
            return self._record(node, namespace, path)
        if kind == "enum":
            return self._enum(node, namespace, path)
        if kind == "fixed":
            return self._fixed(node, namespace, path)
        return self._reference(kind, namespace, path)

    def _reference(self, name: str, namespace: str, path: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        # A name without a namespace may also be that of a type that has none.
        candidates = tuple(dict.fromkeys((full, name)))
        while True:
            for candidate in candidates:
                if candidate in self._known:
                    return self._known[candidate]
            if not self._unparsed:
                raise _invalid(path, f"type {_shown(name)} is not defined; define it, or {REFERENCE_IT}")
            # Usually a reference has the name of the type.
            self._define_one(next((one for one in candidates if one in self._unparsed), next(iter(self._unparsed))))

    def _union(self, branches: list[Any], namespace: str, path: str) -> Union:
        if not branches:
            raise _invalid(path, "a union needs at least one type")
        found = tuple(self.parsed(branch, namespace, path) for branch in branches)
        if any(isinstance(branch, Union) for branch in found):
            raise _invalid(path, "a union is directly inside a union")
        kinds = [_union_key(branch) for branch in found]
        double = next((kind for kind, times in Counter(kinds).items() if times > 1), None)
        if double is not None:
            raise _invalid(path, f"a union has the type {double} twice")
        return Union(found)

    def _record(self, node: dict[str, Any], namespace: str, path: str) -> Record:
        record = self._defined(Record(self._name(node, namespace, path)), path)
        fields = _required(node, "fields", path)
        if not isinstance(fields, list):
            raise _invalid(path, f"the fields of record {record.name} are not a list")
        own = record.name.rpartition(".")[0]
        names = set[str]()
        for number, one in enumerate(fields):
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise _invalid(path, f"field {number} of record {record.name} has no name")
            name = one["name"]
            inside = f"{path}.{name}"
            if not NAME.fullmatch(name):
                raise _invalid(inside, f"{_shown(name)} is not a valid name: it must match {NAME.pattern}")
            if name in names:
                raise _invalid(inside, f"record {record.name} has two fields of this name")
            names.add(name)
            record.fields.append(
                Field(name, self.parsed(_required(one, "type", inside), own, inside), one.get("default", MISSING))
            )
        return record

    def _enum(self, node: dict[str, Any], namespace: str, path: str) -> Enum:
        symbols = _required(node, "symbols", path)
        if not isinstance(symbols, list) or not all(isinstance(one, str) and NAME.fullmatch(one) for one in symbols):
            raise _invalid(path, "the symbols of an enum must be a list of names")
        if len(set(symbols)) < len(symbols):
            raise _invalid(path, "an enum has a symbol twice")
        if node.get("default") is not None and node["default"] not in symbols:
            raise _invalid(path, f"the default of an enum is {_shown(node['default'])}, must be one of its symbols")
        return self._defined(Enum(self._name(node, namespace, path), {each: place for place, each in enumerate(symbols)}), path)

    def _fixed(self, node: dict[str, Any], namespace: str, path: str) -> Fixed:
        size = _required(node, "size", path)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise _invalid(path, f"the size of a fixed is {_shown(size)}, must be a whole number of at least 0")
        if size > _LARGEST_FIXED:
            raise _invalid(path, f"the size of a fixed is {size:,}, must be at most {_LARGEST_FIXED:,}")
        return self._defined(Fixed(self._name(node, namespace, path), size, _logical(node, "fixed", size, path)), path)

    def _name(self, node: dict[str, Any], namespace: str, path: str) -> str:
        name = _required(node, "name", path)
        own = node.get("namespace")
        if not isinstance(name, str) or not isinstance(own, str | None):
            raise _invalid(path, "a name or a namespace is not text")
        around = namespace if own is None else own
        full = name if "." in name or not around else f"{around}.{name}"
        if not all(NAME.fullmatch(part) for part in full.split(".")):
            raise _invalid(path, f"{_shown(full)} is not a valid name: each part must match {NAME.pattern}")
        if full in PRIMITIVES:
            raise _invalid(path, f"{full} is the name of a primitive type")
        return full

    def _defined(self, found: _Type, path: str) -> _Type:
        if found.name in self._known:
            raise _invalid(path, f"{found.name} is defined twice")
        self._known[found.name] = found
        return found


def _logical(node: dict[str, Any], kind: str, size: int | None, path: str) -> Logical | None:
    """Returns the logical type; None if there is none, or it is unknown or invalid, which the specification ignores.

    Raises SchemaError for a decimal that is too large to handle.
    """
    name = node.get("logicalType")
    if not isinstance(name, str) or kind not in _LOGICAL.get(name, ()):
        return None
    if name == "uuid" and size not in (None, 16):
        return None
    if name != "decimal":
        return Logical(name)
    precision, scale = node.get("precision"), node.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None
    if precision > _MOST_DIGITS:
        raise _invalid(path, f"a decimal of {precision:,} digits is not supported; the most is {_MOST_DIGITS:,}")
    if size is not None and size > _LARGEST_DECIMAL:
        raise _invalid(path, f"a decimal in a fixed of {size:,} bytes is not supported; the most is {_LARGEST_DECIMAL:,}")
    if size is not None and (precision > 3 * size or 10**precision > 1 << (8 * size - 1)):
        return None
    return Logical(name, precision, scale)


def _required(node: dict[str, Any], key: str, path: str) -> Any:
    if key not in node:
        raise _invalid(path, f"a {_shown(node.get('type', 'field'))} has no attribute {key!r}")
    return node[key]


def _union_key(branch: AvroType) -> str:
    if isinstance(branch, _Named):
        return branch.name
    return branch.kind if isinstance(branch, Primitive) else type(branch).__name__.lower()


def _shown(node: Any) -> str:
    text = json.dumps(node)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _invalid(path: str, problem: str) -> SchemaError:
    where = f"field {path.lstrip('.')}: " if path else ""
    return SchemaError(f"the Avro schema is not valid: {where}{problem}", path=path.lstrip("."))
