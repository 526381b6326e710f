"""Checks of the schema registry: whether it responds, and whether the columns fit its schemas. Nothing is registered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.formats.resolve import checked
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.spark.driver.checks.context import CheckContext
from spark_kafka_sink.spark.driver.checks.report import CheckLine, failed_by, not_checked, ok

if TYPE_CHECKING:
    import pyarrow as pa

REGISTRY: Final = "registry"


def check_registry(context: CheckContext) -> Iterator[CheckLine]:
    """Checks each part, key and value, that has a format."""
    settings = context.options.schemas
    if settings is None:
        return
    from pyspark.sql.types import StructType

    from spark_kafka_sink.spark.plan.resolved_schemas import part_types
    from spark_kafka_sink.spark.plan.schema_casts import in_sparks_words

    now = time.monotonic()
    one_s, all_s = (max(0.1, deadline - now) for deadline in (context.soon(), context.deadline))
    limit_ms = min(settings.registry.request_timeout_ms, int(one_s * 1000))
    quick = replace(settings.registry, request_timeout_ms=limit_ms, max_retries=0)
    with RegistryClient(quick, call_s=one_s) as opened:
        client = opened.within(all_s)
        for config in settings.configs:
            try:
                with in_sparks_words(context.dataframe or StructType(), context.schema):
                    loaded = config.loaded()
                    kind = None  # without a DataFrame whose columns fit
                    if context.schema is not None and context.dataframe is not None:
                        kind = part_types((loaded,), context.schema, context.dataframe)[config.part]
                    line = _part(context, loaded, client, kind)
            except KafkaSinkError as error:
                line = failed_by(REGISTRY, error)
            yield line


def _part(context: CheckContext, config: SchemaConfig, client: RegistryClient, kind: pa.DataType | None) -> CheckLine:
    """kind: the type of the part's column."""
    if not config.is_registrys and config.text is None and kind is None:
        return _without_columns(context, config, client)
    found = checked(config, context.options.topic, kind, client)
    if isinstance(found, ResolvedSchema):
        return ok(REGISTRY, f"{config.part}: {found}")
    new = f"{config.part}: the schema is new in subject {found.subject} and will be registered"
    # Whether the schema is compatible can be asked only with all files that it comes with.
    return ok(REGISTRY, new if found.given is not None else f"{new} with the files that it imports")


def _without_columns(context: CheckContext, config: SchemaConfig, client: RegistryClient) -> CheckLine:
    """Asks for the subject at least, if its name is known without the columns."""
    unknown = "the schema is derived from a DataFrame, and none that fits was given"
    if context.options.topic is None or config.strategy != "topic":
        return not_checked(REGISTRY, f"{config.part}: {unknown}")
    subject = f"{context.options.topic}-{config.part}"
    found = client.latest(subject)
    known = "is new" if found is None else f"has schema {found.schema_id} as its latest"
    return ok(REGISTRY, f"{config.part}: the registry responds; subject {subject} {known}", unknown)
