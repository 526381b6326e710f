"""Asks the registry on the driver, so that tasks get schemas and ids, and need neither the registry nor its secrets.

Spark plans each micro-batch of a stream, often in a new process. A running stream must survive an outage of the registry, and its
rows must not change their schema between two micro-batches. So a file in Spark's folder for temporary files has the schemas that
the stream began with. Spark does not tell a data source which run of which query it writes for: a stream that is started again in
the same application, with the same checkpoint, finds the file of the earlier run.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.resolve import NewSchema, checked, registered, with_registered_files
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema, SchemaSerializer
from spark_kafka_sink.options.registry_options import RegistryConfig
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.options.sink_schema_options import SchemaSettings
from spark_kafka_sink.registry.registry_client import CALL_S, RegistryClient
from spark_kafka_sink.spark.column_types import whole_type
from spark_kafka_sink.spark.plan.schema_casts import in_sparks_words
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
            found[config.part] = whole_type(t.StructType([schema.fields[one] for one in place.places]))
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
        with in_sparks_words(schema, columns):
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


# The schemas that a stream began with


Schemas = tuple[ResolvedSchema, ...]

_KEY: Final = "kafka-sink-key"
_KEY_BYTES: Final = 32


def kept_schemas(registry: RegistryConfig, named: Iterable[object], find: Callable[[], Schemas]) -> Schemas:
    """Returns the schemas that an earlier micro-batch found, or finds them.

    Args:
        registry: settings of the registry. Streams with different logins do not share schemas.
        named: what the schemas depend on apart from that, and what tells streams apart.
        find: asks the registry.
    """
    # Spark sets it for processes that plan and commit, and removes the folders when the application ends.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    key = _key(Path(folder)) if folder else None
    if key is None:
        return find()
    # A hash with a secret key: a file's name must not let anyone try passwords.
    text = repr((registry, list(_secrets(registry)), *named))
    file = Path(folder) / f"kafka-sink-schemas-{hmac.digest(key, text.encode(errors='surrogatepass'), 'sha256').hex()[:32]}"
    found = _read(file)
    if found is None:
        found = find()
        _write(file, json.dumps([asdict(schema) for schema in found]).encode())
    return found


def _secrets(settings: Any) -> Iterator[str]:
    """Yields what the representation of settings leaves out."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        if isinstance(value, Secret):
            yield f"{each.name}={value.unresolved()}"
        elif hasattr(value, "__dataclass_fields__"):
            yield from _secrets(value)


def _key(folder: Path) -> bytes | None:
    """Returns the application's key, which its first stream makes; None if there can be no file."""
    file = folder / _KEY
    with suppress(OSError):
        if not file.exists():
            _write(file, secrets.token_bytes(_KEY_BYTES), replaces=False)
        if _is_ours(file) and len(found := file.read_bytes()) == _KEY_BYTES:
            return found
    return None


def _is_ours(file: Path) -> bool:
    return file.lstat().st_uid == os.getuid()


def _read(file: Path) -> Schemas | None:
    """Returns the schemas of a file; None if it does not exist, is damaged, or belongs to another user."""
    try:
        if not _is_ours(file):
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
        return tuple(ResolvedSchema(**{**one, "named": tuple(map(tuple, one["named"]))}) for one in found)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, data: bytes, *, replaces: bool = True) -> None:
    """Writes a whole file that only this user can read. If that fails, the next micro-batch asks the registry.

    replaces: whether it replaces a file that is there already.
    """
    new = file.with_name(f"{file.name}-{os.getpid()}")
    with suppress(OSError):
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as opened:
                opened.write(data)
            if replaces:
                new.replace(file)
            else:
                os.link(new, file)
        finally:
            new.unlink(missing_ok=True)
