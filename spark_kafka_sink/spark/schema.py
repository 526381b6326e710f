"""Finds the columns of a Kafka record in a DataFrame."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.options.record_options import (
    KEY_COLUMNS,
    NAMED_COLUMNS,
    TOMBSTONE_COLUMN,
    TRACE_HEADER,
    TRACEPARENT,
    VALUE_COLUMNS,
    RecordOptions,
    TraceHeader,
)
from spark_kafka_sink.producer.serializers.json_serializer import why_not_json
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.spark.column_types import (
    RECORD_COLUMNS,
    arrow_type,
    as_text,
    check_column,
    check_has_arrow_type,
    check_serialized,
    quoted,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_kafka_sink.options.sink_options import SinkOptions


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns that form a key or a value together, as a struct.

    places: their positions in the rows. names: the names of the struct's fields, in the same order. as_json: whether the sink
    writes the struct as JSON; if not, a serializer gets it.
    """

    places: tuple[int, ...]
    names: tuple[str, ...]
    as_json: bool


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """The position of each column of a record in the rows, or None if the rows do not have it.

    tombstone: the column that is true where the value is null. traceparent: the column of that header, if an option asks for it.
    """

    value: int | ColumnGroup
    key: int | ColumnGroup | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    tombstone: int | None = None
    traceparent: int | None = None

    def places(self) -> list[int]:
        """Returns the positions of all columns that are used, each once."""
        found: dict[int, None] = {}
        for place in (getattr(self, field.name) for field in fields(self)):
            found.update(dict.fromkeys(place.places if isinstance(place, ColumnGroup) else () if place is None else (place,)))
        return list(found)

    def selected(self) -> SinkSchema:
        """Returns the schema of rows that have only the columns at `places()`, in that order."""
        new = {place: index for index, place in enumerate(self.places())}

        def moved(place: int | ColumnGroup | None) -> int | ColumnGroup | None:
            if isinstance(place, ColumnGroup):
                return ColumnGroup(tuple(new[one] for one in place.places), place.names, place.as_json)
            return None if place is None else new[place]

        return SinkSchema(**{field.name: moved(getattr(self, field.name)) for field in fields(self)})  # type: ignore[arg-type]


def sink_schema(
    schema: t.StructType,
    topic_option: str | None,
    serializers: Mapping[str, Serializer] = MappingProxyType({}),
    *,
    record: RecordOptions = NAMED_COLUMNS,
    formats: Collection[str] = (),
    case_sensitive: bool = False,
) -> SinkSchema:
    """Finds the record's columns in `schema`. Other columns are ignored, as by Spark's own Kafka sink.

    Args:
        serializers: those of key and value that an option sets. They decide which types these columns may have.
        record: names the columns of key, value and tombstones where they are not named after the parts of a record.
        formats: the parts, key and value, that have a format with a schema. They may have any type that Arrow has.
        case_sensitive: the value of spark.sql.caseSensitive, which Spark does not pass to a data source.

    Raises:
        SchemaError: a column is missing, exists twice, or has a wrong type (with the cast to use).
    """
    names = schema.fieldNames()
    exact = [name for name in names if name.lower() == "value"]
    hint = f"; did you mean {exact[0]}?" if exact else nearest("value", names)
    found = columns_of_record(names, topic_option, hint, record, case_sensitive=case_sensitive, takes_rest="value" in formats)
    for name, index in found.named.items():
        if name in formats:
            check_has_arrow_type(schema.fields[index])
        else:
            check_column(schema.fields[index].dataType, name, serializers.get(name))
    parts = {
        part: _fields(schema, places) if part in formats else _part(schema, part, places, serializers.get(part))
        for part, places in found.listed.items()
    }
    if found.tombstone is not None:
        _check_tombstone(schema.fields[found.tombstone])
    if found.traceparent is not None:
        _check_traceparent(schema.fields[found.traceparent])
    return SinkSchema(**found.named, **parts, tombstone=found.tombstone, traceparent=found.traceparent)  # type: ignore[arg-type]


def schema_of(df: DataFrame, options: SinkOptions) -> SinkSchema:
    """Finds the record's columns in a DataFrame, whose session says whether names are case-sensitive. Raises `SchemaError`."""
    from spark_kafka_sink.spark.plugin_checks import looked_at  # tasks import this module, and check no plug-ins

    case_sensitive = str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    schema = _readable_schema(df)
    with looked_at(options.producer) as serializers:
        return sink_schema(
            schema,
            options.topic,
            serializers,
            record=options.record,
            formats=options.formats,
            case_sensitive=case_sensitive,
        )


def _readable_schema(df: DataFrame) -> t.StructType:
    """Returns the DataFrame's schema. Raises `SchemaError` for a type of the JVM's that PySpark lacks, used or not.

    PySpark's own error does not name the column. Spark 4.3 has such types: timestamps in nanoseconds.
    """
    try:
        return df.schema
    except PySparkException:
        java: Any = getattr(df, "_jdf", None)
        for field in json.loads(java.schema().json())["fields"] if java is not None else ():
            try:
                t.StructType.fromJson({"type": "struct", "fields": [field]})
            except Exception:  # a ValueError, or PySpark's own
                name, kind = field["name"], field["type"]
                found = kind if isinstance(kind, str) else kind["type"]
                stamp = re.fullmatch(r"(timestamp\w*)\(\d+\)", found)
                cast = f"cast({quoted(name)} as {stamp[1] if stamp else 'string'})"
                loss = ", which cuts off nanoseconds" if stamp else ""
                raise SchemaError(
                    f"column {name}: is {found}, which PySpark {pyspark.__version__} cannot read; drop it, or use {cast}{loss}",
                    column=name,
                ) from None
        raise


@dataclass(frozen=True, slots=True)
class FoundColumns:
    """Positions among a row's columns: by the name of a record's column; by `key` and `value`, where an option lists columns."""

    named: dict[str, int]
    listed: dict[str, tuple[int, ...]]
    tombstone: int | None = None
    traceparent: int | None = None


def columns_of_record(
    names: Sequence[str],
    topic_option: str | None,
    value_hint: str,
    record: RecordOptions = NAMED_COLUMNS,
    *,
    case_sensitive: bool = False,
    takes_rest: bool = False,
) -> FoundColumns:
    """Returns the position of each column of a record among a row's `names`. The topic column is left out if the option is set.

    takes_rest: whether, without a value column, all columns that have no other use are listed as the value's.

    Raises `SchemaError` for a column that exists twice, for a missing value column (with `value_hint`), for a missing topic, and
    for an option that names a column which does not exist.
    """
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(name if case_sensitive else name.lower(), []).append(index)

    def place_of(option: str, name: str) -> int:
        found = places.get(name if case_sensitive else name.lower())
        if found is None:
            hint = nearest(name, names) or f"; the columns are {', '.join(names)}"
            text = f"option {option}: there is no column {name}{hint}"
            raise SchemaError(text, column=name, option=option)
        if len(found) > 1:
            both = ", ".join(names[index] for index in found)
            text = f"option {option}: {name} matches {len(found)} columns ({both}); drop or rename all but one"
            raise SchemaError(text, column=name, option=option)
        return found[0]

    def places_of(option: str, listed: Sequence[str]) -> tuple[int, ...]:
        found = tuple(place_of(option, name) for name in listed)
        for index, place in enumerate(found):
            if place in found[:index]:
                text = f"option {option}: names column {names[place]} twice ({', '.join(listed)})"
                raise SchemaError(text, column=names[place], option=option)
        return found

    listed = {
        part: places_of(option, record.columns_of(part))
        for part, option in (("key", KEY_COLUMNS), ("value", VALUE_COLUMNS))
        if record.columns_of(part)
    }
    found = {}
    for name in RECORD_COLUMNS:
        if name in places and not (name == "topic" and topic_option is not None):
            if name in listed:
                _check_listed(name, names[places[name][0]], listed[name], places[name])
                continue
            found[name] = places[name][0]
            _check_once(name, [names[index] for index in places[name]])
    tombstone = None if record.tombstone_column is None else place_of(TOMBSTONE_COLUMN, record.tombstone_column)
    traceparent = place_of(TRACE_HEADER, TRACEPARENT) if record.trace.header is TraceHeader.COLUMN else None
    used = {*listed.get("key", ()), *(one for one in (tombstone, traceparent) if one is not None)}
    if takes_rest and "value" not in found and "value" not in listed:
        listed["value"] = _rest(names, {*used, *found.values()})
    if "value" not in found and "value" not in listed:
        text = f"column value is required{value_hint}; rename one, or list columns in the option {VALUE_COLUMNS} to write JSON"
        raise SchemaError(text, column="value")
    if "topic" not in found and topic_option is None:
        raise SchemaError("column topic is required when the option topic is not set", column="topic")
    if tombstone is not None and "key" not in found and "key" not in listed:
        text = f"option {TOMBSTONE_COLUMN}: tombstones need a key; add a column key or set the option {KEY_COLUMNS}"
        raise SchemaError(text, column="key", option=TOMBSTONE_COLUMN)
    return FoundColumns(found, listed, tombstone, traceparent)


def _rest(names: Sequence[str], used: Collection[int]) -> tuple[int, ...]:
    """Returns the positions of columns that have no other use."""
    found = tuple(place for place in range(len(names)) if place not in used)
    if not found:
        raise SchemaError(
            "option value.format: all columns have another use; add one for the value, or set value.columns", column="value"
        )
    return found


def _check_listed(part: str, name: str, listed: tuple[int, ...], places: list[int]) -> None:
    """Raises `SchemaError` if a column is named after a part of the record that an option makes of other columns."""
    if not set(places) <= set(listed):
        raise SchemaError(
            f"option {part}.columns: the DataFrame also has a column {name}; drop or rename it, or remove the option",
            column=name,
            option=f"{part}.columns",
        )


def _check_once(name: str, found: list[str]) -> None:
    if len(set(found)) > 1:
        text = f"columns {' and '.join(sorted(set(found)))} differ in case alone, and both are the record's {name}"
        raise SchemaError(f"{text}; drop or rename all but one", column=name)
    if len(found) > 1:
        raise SchemaError(f"column {name}: there are {len(found)} of this name; drop or rename all but one", column=name)


def check_arrow(schema: t.StructType) -> None:
    """Raises `SchemaError` for a column that Python workers cannot read. Spark hands a data source all columns, used or not."""
    for field in schema.fields:
        if _holds_months(field.dataType):
            raise SchemaError(
                f"column {field.name}: is {field.dataType.simpleString()}, which Spark cannot hand to Python;"
                " select the record's columns before the write, or cast it to string",
                column=field.name,
            )


def _holds_months(kind: t.DataType) -> bool:
    if isinstance(kind, t.StructType):
        return any(_holds_months(field.dataType) for field in kind.fields)
    if isinstance(kind, t.MapType):
        return _holds_months(kind.keyType) or _holds_months(kind.valueType)
    return _holds_months(kind.elementType) if isinstance(kind, t.ArrayType) else isinstance(kind, t.YearMonthIntervalType)


# Keys and values of listed columns; tombstones


def _fields(schema: t.StructType, places: tuple[int, ...]) -> ColumnGroup:
    """Returns the columns as the fields of a record with a schema."""
    fields = [schema.fields[place] for place in places]
    for field in fields:
        check_has_arrow_type(field)
    return ColumnGroup(places, tuple(field.name for field in fields), as_json=False)


def _part(schema: t.StructType, part: str, places: tuple[int, ...], serializer: Serializer | None) -> int | ColumnGroup:
    """Returns how the listed columns form a key or value. A serializer gets one column as it is, and several as a struct."""
    columns = [schema.fields[place] for place in places]
    names = tuple(field.name for field in columns)
    if len(columns) == 1 and serializer is not None:
        check_serialized(names[0], columns[0].dataType, serializer, part)
        return places[0]
    kinds = [arrow_type(field.dataType) for field in columns]
    for field, kind in zip(columns, kinds, strict=True):
        problem = f"which no serializer accepts; use {as_text(field.name, field.dataType)}" if kind is None else None
        if kind is not None and serializer is None and (reason := why_not_json(kind)):
            problem = f"which cannot be written as JSON ({reason.removeprefix('but ')})"
        if problem is not None:
            text = f"option {part}.columns: column {field.name} is {field.dataType.simpleString()}, {problem}"
            raise SchemaError(text, column=field.name, option=f"{part}.columns")
    if serializer is not None:
        try:
            serializer.accepts(pa.struct(list(zip(names, kinds, strict=True))))
        except SerializationError as error:
            text = f"option {part}.columns: {type(serializer).__name__} does not accept several columns ({error.message})"
            raise SchemaError(
                f"{text}; name one column, or remove kafka.{part}.serializer to write JSON", option=f"{part}.columns"
            ) from None
    return ColumnGroup(places, names, as_json=serializer is None)


def _check_traceparent(field: t.StructField) -> None:
    if not isinstance(field.dataType, t.StringType | t.NullType):
        raise SchemaError(
            f"option {TRACE_HEADER}: column {field.name} is {field.dataType.simpleString()}, must be string;"
            f" use {as_text(field.name, field.dataType)}",
            column=field.name,
            option=TRACE_HEADER,
        )


def _check_tombstone(field: t.StructField) -> None:
    if not isinstance(field.dataType, t.BooleanType):
        hint = f"; use cast({quoted(field.name)} as boolean)" if isinstance(field.dataType, t.NumericType | t.StringType) else ""
        raise SchemaError(
            f"option {TOMBSTONE_COLUMN}: column {field.name} is {field.dataType.simpleString()}, must be boolean{hint}",
            column=field.name,
            option=TOMBSTONE_COLUMN,
        )
