"""Base classes of formats: one reads schemas, derives them from columns, and writes columns and values with them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name of Avro and of Protobuf."""
REFERENCE_IT: Final = "register it, and name it in the option value.schema.references (of keys: key.schema.references)"
"""Advice in the error about a given schema that uses another one."""


class ColumnPlan(ABC):
    """How columns of one type are written with a schema. It has no state, so any thread may use it."""

    @abstractmethod
    def encode(self, column: pa.Array, prefix: bytes = b"") -> pa.Array:
        """Encodes each row, after `prefix`. A null row stays null.

        Args:
            column: n rows of the plan's type. Another type, such as one with other nullable fields, is fitted first.
            prefix: bytes before each value, such as the id of the schema.

        Returns:
            n rows of binary; large_binary if there are more than 2 GiB.

        Raises:
            SchemaError: The column has another type, which the schema does not fit.
            SerializationError: The schema cannot hold a row. `facts` has row and path.
        """


class LoadedSchema(ABC):
    """A schema that columns and single values are written with.

    Attributes:
        record_name: full name of the record or message, or title of a JSON Schema, for names of subjects; None if it has none.
        after_id: bytes between the schema's id and the data.
    """

    record_name: str | None = None
    after_id: bytes = b""

    @abstractmethod
    def fit(self, kind: pa.DataType) -> ColumnPlan:
        """Makes the plan for columns of a type.

        Args:
            kind: type of the columns; a struct for a record.

        Raises:
            SchemaError: The schema does not fit the type. The text has a line for each misfit, and `facts` has them as `misfits`.
        """

    @abstractmethod
    def encode_value(self, value: Any, prefix: bytes = b"") -> bytes | None:
        """Encodes one value, after `prefix`. None is a null and has no bytes.

        Raises:
            SerializationError: The schema cannot hold the value. `facts` has path.
        """


NAME_DIFFERS: Final = "the name of the record"
"""Begins the first line of `SchemaFormat.differences` if two records have different names."""


def compared(before: Mapping[str, str], after: Mapping[str, str], when_new: Mapping[str, str] | None = None) -> list[str]:
    """Returns a line, with both types, for each field that only one of two schemas has, or whose type differs.

    Args:
        before: the type of each field of the registered schema in words, by its path.
        after: the same of the other one.
        when_new: what follows the type of a new field.
    """
    found = []
    for path, kind in after.items():
        earlier = before.get(path)
        if earlier is None:
            found.append(f"{path}: new, {kind}{(when_new or {}).get(path, '')}")
        elif earlier != kind:
            found.append(f"{path or 'the value'}: was {earlier}, is {kind}")
    return [*found, *(f"{path}: was {kind}, is missing" for path, kind in before.items() if path not in after)]


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One of the texts that a given schema consists of. A registry has each of them in a subject of its own.

    Attributes:
        name: how others refer to it; empty for the schema itself.
        text: what to register.
        uses: names of the others that it refers to.
    """

    name: str
    text: str
    uses: tuple[str, ...] = ()


Latest = Callable[[], tuple[str, str, Mapping[str, str]] | None]
"""Asks for the latest version of a subject: what it is in words, its text, and the texts that it refers to, by name."""


class SchemaFormat(ABC):
    """A format of schemas.

    Attributes:
        name: the value of the options `key.format` and `value.format`.
        kind: the registry's name of it, its `schemaType`.
    """

    name: str
    kind: str

    def files(self, text: str, message: str | None) -> Sequence[SchemaFile]:
        """Returns what to register of a given schema: the files that it comes with, each after those that it uses, then itself.

        Args:
            text: the schema, as the options have it.
            message: name of the message to write; None: the schema decides.
        """
        return (SchemaFile("", text),)

    def prepared(self, text: str, named: Mapping[str, str], message: str | None) -> tuple[str, Mapping[str, str]]:
        """Returns the texts that `load` needs. They are made on the driver, because tasks may lack the libraries of an extra.

        Args:
            text: the schema, as the registry or the options have it.
            named: texts of the schemas that it refers to, by the name of the reference.
            message: name of the message to write; None: the schema decides.

        Raises:
            SchemaError: the schema is not valid.
            InstallationError: a library of an extra is missing.
        """
        return text, named

    def load(self, text: str, named: Mapping[str, str]) -> LoadedSchema:
        """Returns the schema that `prepared` made. Raises SchemaError if it is not valid."""
        return loaded_schema(self.name, text, named)

    def derive(self, kind: pa.DataType, name: str, latest: Latest = lambda: None) -> str:
        """Returns the text of a schema for columns of a type.

        Args:
            kind: type of the columns. Its fields say whether they may be null, and have comments in their metadata.
            name: full name of the record.
            latest: the latest version, whose numbers fields must keep.

        Raises:
            SchemaError: a column's type or name is not possible in this format.
        """
        try:
            return self.derived(kind, name, latest)
        except RecursionError:
            raise SchemaError("the type of the columns is nested too deeply") from None

    @abstractmethod
    def derived(self, kind: pa.DataType, name: str, latest: Latest) -> str:
        """Returns what `derive` does. It may raise RecursionError."""

    @abstractmethod
    def differences(self, old: str, new: str) -> list[str]:
        """Returns a line, with both types, for each field that only one of two schemas has, or whose type differs."""

    @abstractmethod
    def inline_rules(self, text: str) -> list[str]:
        """Returns the fields of a schema that have rules of their own."""


# Classes of each format, and of its schemas. Their modules are imported when they are used, because a task needs one format at
# most, and of Protobuf nothing that compiles schemas.
_FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "avro": ("avro.avro_format", "AvroFormat"),
    "json-schema": ("json_schema.json_schema_format", "JsonSchemaFormat"),
    "protobuf": ("protobuf.protobuf_format", "ProtobufFormat"),
}
_LOADED: Final[Mapping[str, tuple[str, str]]] = {
    "avro": ("avro.avro_format", "LoadedAvro"),
    "json-schema": ("json_schema.json_schema_format", "LoadedJsonSchema"),
    "protobuf": ("protobuf.protobuf_fit", "LoadedProtobuf"),
}


def schema_format(name: str) -> SchemaFormat:
    """Returns a format. `name` is a value of the options `key.format` and `value.format`."""
    made: SchemaFormat = _imported(_FORMATS[name])()
    return made


def loaded_schema(name: str, text: str, named: Mapping[str, str]) -> LoadedSchema:
    """Returns the schema that `SchemaFormat.prepared` made, in a task. Raises SchemaError if it is not valid."""
    made: LoadedSchema = _imported(_LOADED[name])(text, named)
    return made


def _imported(place: tuple[str, str]) -> Any:
    return getattr(import_module(f"spark_kafka_sink.formats.{place[0]}"), place[1])
