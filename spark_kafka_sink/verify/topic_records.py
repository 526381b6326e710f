"""The two sides of a comparison: the records that rows stand for, and the records of a topic, decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_kafka_sink.errors import InstallationError, OptionError
from spark_kafka_sink.formats.schema_format import schema_format
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.producer.serializers.primitives import ByteArraySerializer
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.producer.serializers.serializer_table import SHORT_NAMES
from spark_kafka_sink.producer.serializers.text import StringSerializer
from spark_kafka_sink.records.timestamps import PER_SECOND
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.spark.column_types import HEADERS_DDL, arrow_type
from spark_kafka_sink.spark.plugin_checks import looked_at
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema, schema_of
from spark_kafka_sink.verify.canonical import Path, canonical_json, comparable, defaults, limits
from spark_kafka_sink.verify.comparison import COLUMNS, UNDECODABLE, Comparison, Side, compare_records, has_no_null, left_out_of
from spark_kafka_sink.verify.conversion import AVRO, JSON, Convert, converter
from spark_kafka_sink.verify.decoding import PLAIN_FORMATS, Decode, SchemaDecoder, plain_decoder
from spark_kafka_sink.verify.read_back import TopicRange, records
from spark_kafka_sink.verify.record_errors import MisfitError, UndecodableError, described
from spark_kafka_sink.verify.schema_ids import (
    ID_HEADERS,
    MAX_SCHEMAS,
    Headers,
    NoSchemaIdError,
    SchemaKey,
    TopicSchema,
    found_schema,
    not_looked_up,
    schema_key,
)

SCHEMA: Final = "schema"
"""The format of a part whose records name their schema. Others are those of `plain_decoder`."""

_PLAIN: Final[Mapping[type[Serializer], str]] = {SHORT_NAMES[name]: name for name in PLAIN_FORMATS}


@dataclass(frozen=True, slots=True)
class PartFormat:
    """A part that is not compared as bytes.

    Attributes:
        part: key or value.
        format: SCHEMA, or a format of `plain_decoder`.
        kind: the type of the column or the struct that it was written from.
        schema_kind: AVRO, PROTOBUF or JSON for SCHEMA, else None.
        limits: what its schemas cannot hold.
        schemas: the schemas of its records.
    """

    part: str
    format: str
    kind: t.DataType
    schema_kind: str | None = None
    limits: Mapping[Path, str] = field(default_factory=dict)
    schemas: Mapping[SchemaKey, TopicSchema] = field(default_factory=dict)


def compare_with_topic(
    rows: DataFrame, options: SinkOptions, topic: TopicRange, *, columns: tuple[str, ...] = COLUMNS, examples: int = 5
) -> Comparison:
    """Compares the records that rows of this topic stand for with those of the topic. options: those of the write.

    Raises:
        OptionError: a serializer's records cannot be read back.
        SchemaError: a column is missing or has a wrong type.
        RegistryError, ReadBackError: the registry or the topic cannot be read.
    """
    schema = schema_of(rows, options)
    formats = _formats(rows.schema, schema, options)
    found = records(rows.sparkSession, topic)
    if options.schemas is not None:
        with RegistryClient(options.schemas.registry) as client:
            messages = {config.part: getattr(config, "message", None) for config in options.schemas.configs}
            formats = _with_schemas(formats, found, client, messages)
    by_part = {one.part: one for one in formats}
    plain = rows.toDF(*(_name(place) for place in range(len(rows.columns))))
    left_out = left_out_of(_alone(plain, schema.timestamp, "timestamp"), columns)
    if "key" in by_part and "partition" in columns and not has_no_null(_alone(plain, schema.partition, "partition"), "partition"):
        left_out["partition"] = "the keys' bytes decide it, and the source does not have them"
    return compare_records(
        Side(_expected(plain, rows.schema, schema, options, by_part), frozenset(by_part)),
        Side(_decoded(found, topic.topic, formats), frozenset(by_part)),
        topic,
        left_out=left_out,
        columns=columns,
        examples=examples,
    )


def _name(place: int) -> str:
    return f"c{place}"


def _alone(plain: DataFrame, place: int | None, name: str) -> DataFrame:
    """Returns one column, or none if there is no such place."""
    return plain.select() if place is None else plain.select(F.col(_name(place)).alias(name))


# Formats


def check_serializers(options: SinkOptions) -> None:
    """Raises OptionError for a serializer whose records cannot be read back."""
    with looked_at(options.producer) as serializers:
        for part, serializer in serializers.items():
            _plain_format(part, serializer, options)


def _formats(schema: t.StructType, places: SinkSchema, options: SinkOptions) -> list[PartFormat]:
    """Returns the parts that are compared as values. Raises OptionError for a serializer whose records cannot be read back."""
    found = []
    configs = () if options.schemas is None else options.schemas.configs
    kinds = {config.part: schema_format(config.format).kind for config in configs}
    with looked_at(options.producer) as serializers:
        for part, place in (("key", places.key), ("value", places.value)):
            if place is None:
                continue
            if part in options.formats:
                format_name: str | None = SCHEMA
            elif part in serializers:
                format_name = _plain_format(part, serializers[part], options)
            else:
                format_name = "json" if isinstance(place, ColumnGroup) else None
            if format_name is not None:
                found.append(PartFormat(part, format_name, _kind(schema, place), kinds.get(part)))
    return found


def _plain_format(part: str, serializer: Serializer, options: SinkOptions) -> str | None:
    """Returns a format of `plain_decoder`; None for bytes and text in UTF-8, which are compared as they are."""
    if isinstance(serializer, ByteArraySerializer):
        return None
    if isinstance(serializer, StringSerializer) and _is_utf_8(part, options):
        return None
    name = _PLAIN.get(type(serializer))
    if name is None:
        option = f"kafka.{part}.serializer"
        text = f"records of {type(serializer).__name__} cannot be read back, so the topic cannot be verified"
        raise OptionError(f"option {option}: {text}", option=option)
    return name


def _is_utf_8(part: str, options: SinkOptions) -> bool:
    settings = options.producer.settings()
    encoding = settings.get(f"{part}.serializer.encoding") or settings.get("serializer.encoding") or "UTF-8"
    return str(encoding).upper().replace("_", "-") in ("UTF-8", "UTF8")


def _kind(schema: t.StructType, place: int | ColumnGroup) -> t.DataType:
    if isinstance(place, ColumnGroup):
        return t.StructType([schema.fields[one] for one in place.places])
    return schema.fields[place].dataType


def _with_schemas(
    formats: Sequence[PartFormat], found: DataFrame, client: RegistryClient, messages: Mapping[str, str | None]
) -> list[PartFormat]:
    """Returns the formats with the schemas that the records name. The driver asks the registry, so that tasks need not."""
    check_extra("confluent_kafka", "Reading records with a schema")
    parts = [one.part for one in formats if one.format == SCHEMA]
    keys = _schema_keys(found, parts)
    with_schemas = []
    for one in formats:
        schemas = {key: found_schema(key, client) for key in sorted(keys.get(one.part, ()), key=str)}
        with_schemas.append(replace(one, schemas=schemas, limits=limits(schemas.values(), one.kind, messages.get(one.part))))
    return with_schemas


def _schema_keys(found: DataFrame, parts: Sequence[str]) -> dict[str, set[SchemaKey]]:
    """Reads the ids of all records. A topic has few different ones."""
    named = [F.struct(F.lit(part).alias("part"), _id_column(part).alias("id")) for part in parts]
    different = found.select(F.explode(F.array(*named)).alias("named")).select("named.*").where("id IS NOT NULL").distinct()
    keys: dict[str, set[SchemaKey]] = {part: set() for part in parts}
    for row in different.limit(MAX_SCHEMAS).collect():
        with suppress(NoSchemaIdError):
            keys[row["part"]].add(schema_key(bytes(row["id"])))
    return keys


def _id_column(part: str) -> Column:
    """Returns the bytes of the id or the guid: a header's if there is one, else those before the data."""
    of_header = F.filter("headers", lambda one: one.getField("key") == ID_HEADERS[part])
    data = F.coalesce(F.try_element_at(of_header, F.lit(1)).getField("value"), F.col(part))
    first = F.substring(data, 1, 1)
    has_id = F.when(first == F.lit(b"\0"), F.substring(data, 1, 5)).when(first == F.lit(b"\1"), F.substring(data, 1, 17))
    return F.when(F.col(part).isNotNull(), has_id)


# What there should be


def _expected(
    plain: DataFrame, schema: t.StructType, places: SinkSchema, options: SinkOptions, formats: Mapping[str, PartFormat]
) -> DataFrame:
    """Returns the records of the rows. `plain` has the columns of `schema` under the names of their places."""

    def column(place: int | None, kind: str) -> Column:
        return F.lit(None).cast(kind) if place is None else F.col(_name(place))

    def part(name: str, place: int | ColumnGroup | None) -> Column:
        if isinstance(place, ColumnGroup):
            value = F.struct(*(F.col(_name(one)).alias(field) for one, field in zip(place.places, place.names, strict=True)))
        else:
            value = column(place, "binary")
        if name in formats:
            value = canonical_json(value, formats[name].kind, formats[name].limits)
        else:
            value = value.cast("binary")
        if name == "value" and places.tombstone is not None:
            value = F.when(F.coalesce(column(places.tombstone, "boolean"), F.lit(False)), None).otherwise(value)
        return value

    timestamp = column(places.timestamp, "bigint")
    if places.timestamp is not None:
        timestamp = _milliseconds(timestamp, schema.fields[places.timestamp].dataType, options.record.timestamp_unit or "ms")
    headers = column(places.headers, HEADERS_DDL).cast(HEADERS_DDL)
    fixed = [
        F.struct(F.lit(name).alias("key"), F.lit(value).cast("binary").alias("value")) for name, value in options.record.headers
    ]
    return plain.select(
        column(places.partition, "int").cast("int").alias("partition"),
        timestamp.alias("timestamp"),
        part("key", places.key).alias("key"),
        part("value", places.value).alias("value"),
        F.concat(F.coalesce(headers, F.array().cast(HEADERS_DDL)), F.array(*fixed).cast(HEADERS_DDL)).alias("headers"),
    )


def _milliseconds(timestamp: Column, kind: t.DataType, unit: str) -> Column:
    """Returns a timestamp column as ms since the epoch, rounded down as the sink does. unit: of whole numbers."""
    if isinstance(kind, t.TimestampType):
        return F.unix_millis(timestamp)
    number = timestamp.cast("bigint") * (1000 if unit == "s" else 1)
    return F.call_function("div", number, F.lit(max(PER_SECOND[unit] // 1000, 1)))


# What there is


def _decoded(found: DataFrame, topic: str, formats: Sequence[PartFormat]) -> DataFrame:
    """Returns records of a topic with the JSON of decoded parts in place of their bytes."""
    if not formats:
        return found
    kinds = {one.part: comparable(one.kind) for one in formats}
    fields = [t.StructField(part, kinds.get(part, t.BinaryType())) for part in ("key", "value")]
    problems = [t.StructField(_problem(part), t.StringType()) for part in ("key", "value")]
    plain = found.select("partition", "offset", "timestamp", "key", "value", "headers")
    schema = t.StructType([*plain.schema.fields[:3], *fields, plain.schema["headers"], *problems])

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        readers = [_Reader(topic, one) for one in formats]
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns |= {_problem(part): pa.nulls(batch.num_rows, pa.string()) for part in ("key", "value")}
            headers = batch.column("headers").to_pylist()
            for reader in readers:
                part = reader.part
                columns[part], columns[_problem(part)] = reader.read(columns[part], headers)
            yield pa.record_batch([columns[field.name] for field in schema.fields], names=schema.fieldNames())

    decoded = plain.mapInArrow(decode, schema)
    selected = {name: F.col(name) for name in plain.columns}
    for one in formats:
        text = canonical_json(F.col(one.part), kinds[one.part], one.limits)
        selected[one.part] = F.coalesce(F.col(_problem(one.part)), text)
    with_schema = [ID_HEADERS[one.part] for one in formats if one.format == SCHEMA]
    if with_schema:
        selected["headers"] = F.filter("headers", lambda one: ~one.getField("key").isin(with_schema))
    return decoded.select(*(column.alias(name) for name, column in selected.items()))


def _problem(part: str) -> str:
    return f"{part}_problem"


class _Reader:
    """Decodes one part of the records in a task."""

    def __init__(self, topic: str, described: PartFormat) -> None:
        self.part = described.part
        kind = arrow_type(comparable(described.kind))
        assert kind is not None  # the sink's schema has been checked
        self._kind = kind
        self._format = described.format
        self._converters: dict[object, Convert] = {}
        schemas, part = described.schemas, described.part
        self._with_schema = SchemaDecoder(topic, part, lambda key: schemas.get(key, not_looked_up(key)), described.schema_kind)
        self._plain: Decode | None = None if described.format == SCHEMA else plain_decoder(described.format)

    def read(self, column: pa.Array, headers: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[pa.Array, pa.Array]:
        """Returns the values of records, null for those that cannot be decoded, and the reasons for these."""
        values: list[Any] = []
        problems: list[str | None] = []
        for data, of_record in zip(column.to_pylist(), headers, strict=True):
            value = problem = None
            if data is not None:
                try:
                    value = self._value(data, [(one["key"], one["value"]) for one in of_record])
                except (UndecodableError, MisfitError) as error:
                    problem = f"{UNDECODABLE}{error}"
                except InstallationError:
                    raise
                except Exception as error:  # such as a text of Protobuf that is not UTF-8, which only reading it finds
                    problem = f"{UNDECODABLE}{described(error)}"
            values.append(value)
            problems.append(problem)
        return pa.array(values, self._kind), pa.array(problems, pa.string())

    def _value(self, data: bytes, headers: Headers) -> Any:
        if self._plain is not None:
            return self._converter(None)(self._plain(data, headers))
        found = self._with_schema.schema(data, headers)
        value = self._with_schema(data, headers)
        if value is None:
            raise UndecodableError("is null in its format, not a null record")
        return self._converter(found)(value)

    def _converter(self, found: TopicSchema | None) -> Convert:
        key = None if found is None else found.key
        if key not in self._converters:
            source = JSON if found is None or found.schema is None else found.schema.kind
            if self._plain is not None and self._format != "json":
                source = AVRO  # whose numbers are numbers, too
            self._converters[key] = converter(self._kind, source, None if found is None else defaults(found))
        return self._converters[key]
