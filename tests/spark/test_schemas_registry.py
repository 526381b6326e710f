"""What the driver asks the registry, without Spark: deadlines, and what a check asks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import types as t

from spark_kafka_sink.errors import OptionError, RegistryError, RegistryTimeoutError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText
from spark_kafka_sink.spark.driver.checks.context import CheckContext, client_for
from spark_kafka_sink.spark.driver.checks.report import CheckLine
from spark_kafka_sink.spark.driver.checks.schema_registry import check_registry
from spark_kafka_sink.spark.driver.foreach_batch import foreach_batch
from spark_kafka_sink.spark.plan import resolved_schemas
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema
from tests.planted_secrets import MARK
from tests.registry.stand_in import Answer, Asked, StandIn

COLUMNS = t.StructType([t.StructField("key", t.LongType(), False), t.StructField("id", t.LongType(), False)])


def given(stand_in: StandIn, **more: str) -> SinkOptions:
    """Returns the options of a sink with keys and values in Avro. In a name, `__` stands for a dot."""
    names = {name.replace("__", "."): value for name, value in more.items()}
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "schema.registry.url": stand_in.url}
    return sink_options({**servers, "key.format": "avro", "value.format": "avro", **names})


def columns_of(options: SinkOptions) -> SinkSchema:
    return sink_schema(COLUMNS, options.topic, record=options.record, formats=options.formats)


def checked(options: SinkOptions, timeout_s: float = 30.0) -> list[CheckLine]:
    """Returns what a check says about the registry."""
    client = client_for(options, timeout_s)
    try:
        context = CheckContext(options, timeout_s, time.monotonic() + timeout_s, client)
        context.schema, context.dataframe = columns_of(options), COLUMNS
        return list(check_registry(context))
    finally:
        client.close()


def slow(asked: Asked) -> None:
    """Answers as usual, but late."""
    time.sleep(0.1)


def test_all_requests_of_a_query_have_one_deadline(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolved_schemas, "CALL_S", 0.35)
    stand_in.fail(*[slow] * 20)
    options = given(stand_in, schema__registry__max__retries="0")
    with pytest.raises(RegistryTimeoutError):
        resolved_schemas.resolved_options(options, columns_of(options), COLUMNS)


def test_all_requests_of_a_check_have_one_deadline(stand_in: StandIn) -> None:
    stand_in.fail(*[slow] * 20)
    lines = checked(given(stand_in), timeout_s=0.5)
    assert lines[-1].status.value == "failed"
    assert len(stand_in.requests) <= 6


def test_a_check_registers_nothing_and_finds_rules_that_the_registry_added(stand_in: StandIn) -> None:
    """They are in the answer by id alone, as rules of a subject's settings are."""
    options = given(stand_in)
    assert all("the schema is new in subject events-" in line.text for line in checked(options))
    posted = [asked.path.partition("?")[0] for asked in stand_in.requests if asked.method == "POST"]
    assert not [path for path in posted if path.startswith("/subjects/") and path.endswith("/versions")]
    resolved_schemas.resolved_options(options, columns_of(options), COLUMNS)
    assert [line.text for line in checked(options)] == [
        "key: schema 1 of subject events-key",
        "value: schema 2 of subject events-value",
    ]
    rules = {"domainRules": [{"name": "ssn", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}]}

    def with_rules(asked: Asked) -> Answer | None:
        return Answer(body={"schema": '"long"', "ruleSet": rules}) if asked.path.startswith("/schemas/ids/1") else None

    stand_in.fail(*[with_rules] * 20)
    first, second = checked(options)
    assert "has rules, which are not supported: ssn (ENCRYPT)" in first.text
    assert second.status.value == "ok"


def test_a_check_reads_the_file_of_a_schema_and_names_sparks_types(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "value.avsc"
    options = given(stand_in, value__schema__file=str(file))
    assert "cannot be read" in checked(options)[-1].text
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}')
    assert "id: column bigint, schema string" in checked(options)[-1].text


@pytest.mark.parametrize("kind", ["fields", "compatibility"])
def test_a_value_that_does_not_fit_leaves_no_schema_of_the_key(stand_in: StandIn, kind: str) -> None:
    text = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}'
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        client.register("events-value", SchemaText("AVRO", text))
    options = given(stand_in, value__schema=text) if kind == "fields" else given(stand_in)
    with pytest.raises(SchemaError if kind == "fields" else SchemaIncompatibleError):
        resolved_schemas.resolved_options(options, columns_of(options), COLUMNS)
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        assert client.latest("events-key") is None


def test_python_functions_take_lists_and_dicts(stand_in: StandIn) -> None:
    more = {"topic": "events", "kafka.bootstrap.servers": "localhost:9092", "schema.registry.url": stand_in.url}
    references = [SchemaReference("a.Inner", "inner", 1)]
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "a.Inner"}]}
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        inner = {"type": "enum", "name": "a.Inner", "symbols": ["A"]}
        client.register("inner", SchemaText("AVRO", json.dumps(inner)))
    options = sink_options({**more, "value.format": "avro", "value.schema": schema, "value.schema.references": references})
    columns = t.StructType([t.StructField("id", t.StringType())])
    placed = sink_schema(columns, options.topic, record=options.record, formats=options.formats)
    found = resolved_schemas.resolved_options(options, placed, columns).producer.value_serializer
    assert found.schema.named == (("a.Inner", json.dumps(inner)),)  # type: ignore[attr-defined]
    metadata = sink_options({**more, "value.format": "avro", "use.latest.with.metadata": {"stage": "live"}})
    with pytest.raises(RegistryError, match="no schema with the metadata stage=live"):
        resolved_schemas.resolved_options(metadata, placed, columns)


# Streams


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns Spark's folder for temporary files."""
    found = tmp_path / "spark"
    found.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(found))
    return found


def schemas_of_stream(options: SinkOptions, **query: str) -> list[int]:
    """Returns the ids with which a micro-batch is written."""
    made = resolved_schemas.resolved_for_stream(options, columns_of(options), COLUMNS, query).producer
    return [one.schema.schema_id for one in (made.key_serializer, made.value_serializer)]  # type: ignore[attr-defined]


def test_a_stream_asks_the_registry_once(stand_in: StandIn, folder: Path) -> None:
    options = given(stand_in)
    first = schemas_of_stream(options)
    asked = len(stand_in.requests)
    assert schemas_of_stream(options) == first
    assert len(stand_in.requests) == asked
    (file,) = folder.glob("kafka-sink-schemas-*")
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}
    file.write_text("{")
    assert schemas_of_stream(options) == first
    assert len(stand_in.requests) > asked


def test_streams_with_other_checkpoints_or_logins_do_not_share_schemas(stand_in: StandIn, folder: Path) -> None:
    def asked(options: SinkOptions, **query: str) -> bool:
        before = len(stand_in.requests)
        schemas_of_stream(options, **query)
        return len(stand_in.requests) > before

    login = {"schema__registry__basic__auth__user__info": f"alice:{MARK}"}
    assert asked(given(stand_in), checkpointlocation="/a")
    assert not asked(given(stand_in), checkpointlocation="/a")
    assert asked(given(stand_in), checkpointlocation="/b")
    assert asked(given(stand_in, **login), checkpointlocation="/a")
    assert not asked(given(stand_in, **login), checkpointlocation="/a")
    assert asked(given(stand_in, **{name: f"{value} and more" for name, value in login.items()}), checkpointlocation="/a")
    store = {"schema__registry__ssl__keystore__location": "/none", "schema__registry__ssl__keystore__password": MARK}
    assert asked(given(stand_in, **store), checkpointlocation="/a")
    assert asked(given(stand_in, **{**store, "schema__registry__ssl__keystore__password": "x"}), checkpointlocation="/a")
    assert MARK.encode() not in b"".join(one.read_bytes() + one.name.encode() for one in folder.iterdir())
    # Another application has another key, so nobody can find out a login from names of files.
    names = {one.name for one in folder.iterdir()}
    for one in folder.iterdir():
        one.unlink()
    schemas_of_stream(given(stand_in, **login), checkpointlocation="/a")
    assert not {one.name for one in folder.glob("kafka-sink-schemas-*")} & names


def test_a_stream_keeps_the_schema_that_it_began_with(stand_in: StandIn, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "value.avsc"
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')
    options = given(stand_in, value__schema__file=str(file))
    first = schemas_of_stream(options, checkpointlocation="/a")
    file.write_text("changed")
    assert schemas_of_stream(given(stand_in, value__schema__file=str(file)), checkpointlocation="/a") == first
    file.unlink()
    assert schemas_of_stream(given(stand_in, value__schema__file=str(file)), checkpointlocation="/a") == first
    with pytest.raises(OptionError, match=rf"option value\.schema\.file: file {file} cannot be read"):
        schemas_of_stream(options, checkpointlocation="/b")


def test_foreach_batch_reads_the_file_of_a_schema_at_once(tmp_path: Path) -> None:
    file = tmp_path / "value.avsc"
    options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "value.format": "avro"}
    with pytest.raises(OptionError, match="cannot be read"):
        foreach_batch({**options, "schema.registry.url": "http://r", "value.schema.file": str(file)})
