"""Avro's rules of schema resolution: whether a reader with one schema can read data that was written with another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Types as which a reader accepts a writer's type."""


def misfits(reader: Any, writer: Any) -> list[str]:
    """Returns why a reader cannot read a writer's data; empty if it can. Schemas that refer to other schemas are not followed.

    Args:
        reader: the reader's schema, as parsed JSON.
        writer: the writer's.
    """
    walk = _Walk()
    walk.compare(reader, writer, "/")
    return walk.found


class _Walk:
    """Compares two schemas. It keeps the types that they name."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._readers: dict[str, Any] = {}
        self._writers: dict[str, Any] = {}
        self._compared: set[tuple[str, str]] = set()

    def compare(self, reader: Any, writer: Any, path: str) -> None:
        """Adds what a reader cannot read to `found`."""
        reader, writer = _resolved(reader, self._readers), _resolved(writer, self._writers)
        if isinstance(writer, list):
            for branch in writer:
                self.compare(reader, branch, path)
            return
        if isinstance(reader, list):
            if not any(self._fits(branch, writer, path) for branch in reader):
                self._add("MISSING_UNION_BRANCH", path, f"the union of the reader has no branch for {_name(writer)}")
            return
        one, other = _kind(reader), _kind(writer)
        if one != other and one not in _PROMOTIONS.get(other, ()):
            self._add("TYPE_MISMATCH", path, f"reader type: {one} not compatible with writer type: {other}")
        elif one == other == "record":
            self._records(reader, writer, path)
        elif one == other == "array":
            self.compare(reader["items"], writer["items"], f"{path}items/")
        elif one == other == "map":
            self.compare(reader["values"], writer["values"], f"{path}values/")
        elif one == other == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if missing and "default" not in reader:
                self._add("MISSING_ENUM_SYMBOLS", path, f"the reader does not have {', '.join(missing)}")
        elif one == other == "fixed" and reader["size"] != writer["size"]:
            self._add("FIXED_SIZE_MISMATCH", path, f"expected: {reader['size']}, found: {writer['size']}")

    def _fits(self, reader: Any, writer: Any, path: str) -> bool:
        before, compared = self.found, set(self._compared)
        self.found = []
        self.compare(reader, writer, path)
        fits = not self.found
        self.found = before
        self._compared = self._compared if fits else compared
        return fits

    def _records(self, reader: Any, writer: Any, path: str) -> None:
        names = _name(reader), _name(writer)
        if names[0].rpartition(".")[2] != names[1].rpartition(".")[2]:
            self._add("NAME_MISMATCH", path, f"expected: {names[1]}, found: {names[0]}")
        if names in self._compared:
            return
        self._compared.add(names)
        fields = {field["name"]: field for field in writer["fields"]}
        for place, field in enumerate(reader["fields"]):
            here = f"{path}fields/{place}"
            other = next((fields[name] for name in (field["name"], *field.get("aliases", ())) if name in fields), None)
            if other is not None:
                self.compare(field["type"], other["type"], f"{here}/type/")
            elif "default" not in field:
                text = f"the field '{field['name']}' has no default value and the writer does not have it"
                self._add("READER_FIELD_MISSING_DEFAULT_VALUE", here, text)

    def _add(self, kind: str, path: str, text: str) -> None:
        place = path.rstrip("/") or "/"
        self.found.append(f"{{errorType:'{kind}', description:'At path '{place}': {text}', additionalInfo:'{place}'}}")


def _resolved(schema: Any, named: dict[str, Any]) -> Any:
    """Returns the type that a name stands for, and keeps the types that have a name."""
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), dict | list):
            return _resolved(schema["type"], named)
        if "name" in schema:
            named[schema["name"]] = schema
            if schema.get("namespace"):
                named[f"{schema['namespace']}.{schema['name']}"] = schema
    return schema


def _kind(schema: Any) -> str:
    return str(schema.get("type")) if isinstance(schema, dict) else str(schema)


def _name(schema: Any) -> str:
    if isinstance(schema, dict) and "name" in schema:
        space = schema.get("namespace")
        return f"{space}.{schema['name']}" if space and "." not in schema["name"] else str(schema["name"])
    return _kind(schema)
