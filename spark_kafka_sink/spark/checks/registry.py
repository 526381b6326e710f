"""Checks of the schema registry: whether it responds, and whether the columns fit its schemas. Nothing is registered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import KafkaSinkError, RegistryError
from spark_kafka_sink.schema_options import SchemaConfig
from spark_kafka_sink.spark.checks.context import CheckContext
from spark_kafka_sink.spark.checks.report import CheckLine, failed_by, not_checked, ok

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.registry.registry_client import RegistryClient

REGISTRY: Final = "registry"


def check_registry(context: CheckContext) -> Iterator[CheckLine]:
    """Checks each part, key and value, that has a format."""
    settings = context.options.schemas
    if settings is None:
        return
    from pyspark.sql.types import StructType

    from spark_kafka_sink.registry.registry_client import RegistryClient
    from spark_kafka_sink.spark.resolved_schemas import whole_type
    from spark_kafka_sink.spark.sparks_types import in_sparks_words

    now = time.monotonic()
    one_s, all_s = (max(0.1, deadline - now) for deadline in (context.soon(), context.deadline))
    quick = replace(settings.registry, timeout=min(settings.registry.timeout, one_s), max_retries=0)
    with RegistryClient(quick, call_s=one_s) as opened:
        client = opened.within(all_s)
        for config in settings.configs:
            try:
                with in_sparks_words(context.dataframe or StructType(), whole_type, context.schema):
                    line = _part(context, config.loaded(), client)
            except KafkaSinkError as error:
                line = failed_by(REGISTRY, error)
            yield line


def _part(context: CheckContext, config: SchemaConfig, client: RegistryClient) -> CheckLine:
    from spark_kafka_sink.producer.serializers.schemas.resolve import (
        incompatible,
        not_registered,
        own_schema,
        own_subject,
        readers_schema,
        refuse_own_rules,
        refuse_rules_of_subject,
        registrys,
        with_files,
    )

    topic, kind = context.options.topic, _kind(context, config)
    if config.is_registrys:
        return ok(REGISTRY, f"{config.part}: {registrys(config, topic, kind, client)}")
    if config.text is None and kind is None:
        return _without_columns(context, config, client)
    own = own_schema(config, topic, kind, client)
    subject = own_subject(config, topic, own)
    refuse_own_rules(config, own)
    refuse_rules_of_subject(config, subject, client)
    new = f"{config.part}: the schema is new in subject {subject} and will be registered"
    try:
        given = with_files(config, own, client, registers=False)
    except RegistryError as error:
        # Whether the schema is compatible can be asked only with all files that it comes with.
        if "fields" not in error.facts or not config.auto_register:
            raise
        return ok(REGISTRY, f"{new} with the files that it imports")
    found = client.look_up(subject, given, normalize=config.normalize)
    if found is not None:
        return ok(REGISTRY, f"{config.part}: {readers_schema(config, subject, found, kind, client)}")
    if not config.auto_register:
        return failed_by(REGISTRY, not_registered(config, subject, given, client))
    misfit = incompatible(config, subject, given, client)
    return ok(REGISTRY, new) if misfit is None else failed_by(REGISTRY, misfit)


def _without_columns(context: CheckContext, config: SchemaConfig, client: RegistryClient) -> CheckLine:
    """Asks for the subject at least, if its name is known without the columns."""
    unknown = "the schema is derived from a DataFrame, and none that fits was given"
    if context.options.topic is None or config.strategy != "topic":
        return not_checked(REGISTRY, f"{config.part}: {unknown}")
    subject = f"{context.options.topic}-{config.part}"
    found = client.latest(subject)
    known = "is new" if found is None else f"has schema {found.schema_id} as its latest"
    return ok(REGISTRY, f"{config.part}: the registry responds; subject {subject} {known}", unknown)


def _kind(context: CheckContext, config: SchemaConfig) -> pa.DataType | None:
    """Returns the type of the part's column; None without a DataFrame whose columns fit."""
    if context.schema is None or context.dataframe is None:
        return None
    from spark_kafka_sink.spark.resolved_schemas import part_types

    return part_types((config,), context.schema, context.dataframe)[config.part]
