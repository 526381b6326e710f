"""The SQL that makes a column fit the type of its field in an Avro, Protobuf or JSON Schema, and errors in Spark's words.

An error about a misfit names the type of the field in the schema's own words. The formats share no word for different types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.nodes import Misfit
from spark_kafka_sink.spark.column_types import as_text, quoted, whole_type
from spark_kafka_sink.spark.schema import SinkSchema

# The SQL type to cast a column to, by the words for a field's type.
_SQL_TYPES: Final[Mapping[str, str]] = {
    "string": "string",
    "string (uuid)": "string",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    # Avro
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "int (date)": "date",
    **{f"long (timestamp-{unit})": "timestamp" for unit in ("millis", "micros", "nanos")},
    **{f"long (local-timestamp-{unit})": "timestamp_ntz" for unit in ("millis", "micros", "nanos")},
    # Protobuf
    "bool": "boolean",
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32", "uint64", "fixed64"), "bigint"),
    "message google.protobuf.Timestamp": "timestamp",
    # JSON Schema
    "integer": "bigint",
    "number": "double",
    "string, format date": "date",
    "string, format date-time": "timestamp",
}
_DECIMAL: Final = re.compile(r".*\(decimal\((\d+), (\d+)\)\)")
_FIXED: Final = re.compile(r"fixed\(\d+\)")
_MOST_DIGITS: Final = 38  # of Spark's decimals
# A field of JSON Schema that may also be null, and keywords that do not change which type a column must have.
_OR_NULL: Final = re.compile(r"(?:(?:oneOf|anyOf) of \((?:null; )?|null or )?(\w+)(?: or null|(?:; null)?\))?((?:, .*)?)")
_FORMAT: Final = re.compile(r", (format date(?:-time)?)(?:, |$)")

_TIMES: Final = (t.StringType, t.DateType, t.TimestampType, t.TimestampNTZType)
# Types whose values can be cast to the SQL type in ANSI mode, Spark's default.
_CASTS: Final[Mapping[str, tuple[type[t.DataType], ...]]] = {
    **dict.fromkeys(("boolean", "int", "bigint", "float", "double"), (t.NumericType, t.StringType, t.BooleanType)),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _TIMES),
    "binary": (t.StringType,),
}
# Decimal digits that each of the types always holds, and those that values of other types may have.
_DIGITS: Final = {"float": 6, "double": 15}
_DIGITS_OF: Final[Mapping[type[t.DataType], int]] = {t.IntegerType: 10, t.LongType: 19, t.DoubleType: 15}
_UNITS: Final = ("seconds", "millis", "micros")


def misfit_remedy(path: str, found: t.DataType, words: str, column: str | None) -> str | None:
    """Returns what to do about a column that does not fit its field; None if no cast helps.

    Args:
        path: the field's path in the schema.
        found: the column's type.
        words: the field's type in the words of the error.
        column: name of the column; None: the field is inside of a column.
    """
    wanted = _sql_type(words)
    if wanted is None or wanted == found.simpleString() or (words == "string (uuid)" and isinstance(found, t.BinaryType)):
        return None
    sql = _sql(quoted(column or path), found, wanted)
    if sql is None or not (column or path):
        return None
    # SQL has no short way to change a field inside of a struct or of an array's elements.
    _, which, loss = sql.partition(", which ")
    return f"convert {path} to {wanted}{which}{loss}" if column is None else f"use {sql}"


def _sql_type(words: str) -> str | None:
    if words in _SQL_TYPES:
        return _SQL_TYPES[words]
    decimal = _DECIMAL.fullmatch(words)
    if decimal is not None:
        return f"decimal({decimal[1]},{decimal[2]})" if int(decimal[1]) <= _MOST_DIGITS else None
    if _FIXED.fullmatch(words):
        return "binary"
    of_json = _OR_NULL.fullmatch(words)
    if of_json is None or of_json[1] == "enum":
        return None
    if ", contentEncoding base64" in of_json[2]:
        return "binary"
    named = _FORMAT.search(of_json[2])
    return _SQL_TYPES.get(of_json[1] if named is None else f"{of_json[1]}, {named[1]}")


def _sql(name: str, found: t.DataType, wanted: str) -> str | None:
    """Returns the SQL, or several ways where only the user knows the unit of a number."""
    if wanted == "string":
        return as_text(name, found)
    castable = (t.NumericType, t.StringType, t.BooleanType) if wanted.startswith("decimal") else _CASTS[wanted]
    if isinstance(found, castable):
        loss = _loss(found, wanted)
        return f"cast({name} as {wanted}){f', which {loss}' if loss else ''}"
    if wanted in ("int", "bigint"):
        if isinstance(found, t.DateType):
            return f"unix_date({name})"
        return _ways("unix_{}", name) if isinstance(found, t.TimestampType) else None
    if wanted == "timestamp" and isinstance(found, t.IntegralType):
        return _ways("timestamp_{}", name)
    if wanted == "date" and isinstance(found, t.IntegralType):
        return f"date_from_unix_date({f'cast({name} as int)' if isinstance(found, t.LongType) else name})"
    return None


def _loss(found: t.DataType, wanted: str) -> str | None:
    """Returns what a cast does to values without an error; None: nothing."""
    if wanted in ("int", "bigint"):
        is_whole = isinstance(found, t.DecimalType) and found.scale == 0
        return "cuts off the fraction" if isinstance(found, t.FractionalType) and not is_whole else None
    if wanted == "date":
        return "drops the time" if isinstance(found, t.TimestampType | t.TimestampNTZType) else None
    if wanted in _DIGITS:
        digits = found.precision if isinstance(found, t.DecimalType) else _DIGITS_OF.get(type(found), 0)
        return "rounds" if digits > _DIGITS[wanted] else None
    # Whole numbers and decimals are written as decimals without a cast.
    return "rounds" if wanted.startswith("decimal") and not isinstance(found, t.BooleanType) else None


def _ways(function: str, name: str) -> str:
    first, second, third = (f"{function.format(unit)}({name})" for unit in _UNITS)
    return f"{first}, {second} or {third}"


# Errors that name Arrow's types


_BEFORE = r"(\bcolumn |\bno type for |\bmap are )"
_ADVICE = re.compile(r": (?:use|cast it) .*")


@contextmanager
def in_sparks_words(schema: t.StructType, columns: SinkSchema | None) -> Iterator[None]:
    """Raises a SchemaError of the block again in Spark's words: columns are `int` in place of `int32`, with the cast to use.

    Args:
        schema: the DataFrame's columns.
        columns: the record's columns, which refer to those of `schema`; None if they are not known.
    """
    try:
        yield
    except SchemaError as error:
        kinds = {str(found): kind for kind in _types(schema) if (found := whole_type(kind)) is not None}
        facts, told = dict(error.facts), error.message
        if "misfits" in facts:
            names = _names(schema, columns, facts.get("part"))
            misfits = [(one, _with_remedy(Misfit(*one), kinds, names)) for one in facts["misfits"]]
            facts["misfits"] = tuple((new.path, new.column, new.schema, new.reason) for _, new in misfits)
            for old, new in misfits:
                told = told.replace(f"\n  {Misfit(*old)}", f"\n  {new}", 1)
        # The longest first: the name of a struct begins like others.
        known = "|".join(map(re.escape, sorted(kinds, key=len, reverse=True)))
        if known:
            told = re.sub(rf"{_BEFORE}({known})(?=[,:])", lambda found: found[1] + kinds[found[2]].simpleString(), told)
        raise type(error)(told, **facts) from None


def _with_remedy(misfit: Misfit, kinds: Mapping[str, t.DataType], names: Mapping[str, str]) -> Misfit:
    """Returns a misfit with Spark's name of the column's type, and with what to do in place of advice in Arrow's words."""
    kind = kinds.get(misfit.column)
    if kind is None:
        return misfit
    remedy = misfit_remedy(misfit.path, kind, misfit.schema, names.get(misfit.path))
    reason = misfit.reason if remedy is None else f"{_ADVICE.sub('', misfit.reason)}; {remedy}"
    return replace(misfit, column=kind.simpleString(), reason=reason)


def _names(schema: t.StructType, columns: SinkSchema | None, part: object) -> Mapping[str, str]:
    """Returns the names of the DataFrame's columns by the paths that errors about a part have for them."""
    place = None if columns is None else columns.key if part == "key" else columns.value
    if place is None:
        return {}
    if isinstance(place, int):
        return {"": schema.fields[place].name}
    return {schema.fields[one].name: schema.fields[one].name for one in place.places}


def _types(kind: t.DataType) -> Iterator[t.DataType]:
    """Yields a type and all types inside it."""
    yield kind
    match kind:
        case t.StructType():
            inner = [field.dataType for field in kind.fields]
        case t.ArrayType():
            inner = [kind.elementType]
        case t.MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    for one in inner:
        yield from _types(one)
