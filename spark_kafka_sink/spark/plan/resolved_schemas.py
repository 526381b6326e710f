"""Asks the registry on the driver, so that tasks get schemas and ids, and need neither the registry nor its secrets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.resolve import NewSchema, checked, registered, with_registered_files
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema, SchemaSerializer
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.options.sink_schema_options import SchemaSettings
from spark_kafka_sink.registry.registry_client import CALL_S, RegistryClient
from spark_kafka_sink.spark.column_types import arrow_type
from spark_kafka_sink.spark.plan.sparks_types import in_sparks_words
from spark_kafka_sink.spark.plan.stream_schemas import kept_schemas
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema

logger = logging.getLogger(__name__)


def resolved_options(options: SinkOptions, columns: SinkSchema, schema: t.StructType) -> SinkOptions:
    """Returns the options with the serializers of the registry's schemas in place of the settings of schemas.

    Registers a schema that the registry does not have, if the options allow that.

    Args:
        options: the sink's options; without schemas they are returned as they are.
        columns: the record's columns.
        schema: the DataFrame's columns, to which `columns` refers.

    Raises:
        RegistryError: the registry cannot be reached, or refuses a request.
        SchemaError: the columns do not fit the schema, or no schema can be derived from them.
    """
    if options.schemas is None:
        return options
    return _with_serializers(options, _resolved(options.schemas, options.topic, columns, schema))


def resolved_for_stream(
    options: SinkOptions, columns: SinkSchema, schema: t.StructType, given: Mapping[str, object]
) -> SinkOptions:
    """Returns `resolved_options`, and asks the registry only once for each stream.

    given: the options of the data source by lower-cased name. They also have the stream's name and checkpoint.
    """
    settings = options.schemas
    if settings is None:
        return options
    query = [given.get(name) for name in ("checkpointlocation", "queryname")]
    named = (settings.configs, options.topic, columns, schema.json(), query)
    find = partial(_resolved, settings, options.topic, columns, schema)
    return _with_serializers(options, kept_schemas(settings.registry, named, find))


def part_types(configs: tuple[SchemaConfig, ...], columns: SinkSchema, schema: t.StructType) -> dict[str, pa.DataType]:
    """Returns the Arrow type of each part that has a format. Fields say whether they may be null, and have their comments.

    Raises SchemaError for a part that has no columns.
    """
    found = {}
    for config in configs:
        place = columns.key if config.part == "key" else columns.value
        if place is None:
            text = f"option {config.part}.format: there is no column {config.part}; add one or set {config.part}.columns"
            raise SchemaError(text, column=config.part, option=f"{config.part}.format")
        if isinstance(place, ColumnGroup):
            found[config.part] = pa.struct([_arrow_field(schema.fields[one]) for one in place.places])
        else:
            found[config.part] = whole_type(schema.fields[place].dataType)
    return found


def _resolved(
    settings: SchemaSettings, topic: str | None, columns: SinkSchema, schema: t.StructType
) -> tuple[ResolvedSchema, ...]:
    kinds = part_types(settings.configs, columns, schema)
    configs = settings.loaded().configs
    with RegistryClient(settings.registry) as client:
        limited = client.within(CALL_S)
        with in_sparks_words(schema, whole_type, columns):
            parts = [checked(config, topic, kinds[config.part], limited) for config in configs]
            # All files first: the registry accepts each part before one of them is registered.
            parts = [with_registered_files(part, limited) if isinstance(part, NewSchema) else part for part in parts]
            found = tuple(registered(part, limited) for part in parts)
    for one in found:
        logger.info("%s is written with %s", one.part, one)
    return found


def _with_serializers(options: SinkOptions, schemas: tuple[ResolvedSchema, ...]) -> SinkOptions:
    made = {f"{schema.part}_serializer": SchemaSerializer(schema) for schema in schemas}
    return replace(options, producer=replace(options.producer, **made), schemas=None)  # type: ignore[arg-type]


# Arrow types


def _arrow_field(field: t.StructField) -> pa.Field:
    comment = (field.metadata or {}).get("comment")
    metadata = {"comment": comment} if isinstance(comment, str) and comment else None
    return pa.field(field.name, whole_type(field.dataType), field.nullable, metadata)


def whole_type(kind: t.DataType) -> pa.DataType:
    """Returns a column's Arrow type with what `arrow_type` leaves out: which values may be null, and comments."""
    if isinstance(kind, t.StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, t.ArrayType):
        return pa.list_(pa.field("element", whole_type(kind.elementType), kind.containsNull))
    if isinstance(kind, t.MapType):
        return pa.map_(whole_type(kind.keyType), pa.field("value", whole_type(kind.valueType), kind.valueContainsNull))
    return arrow_type(kind)
