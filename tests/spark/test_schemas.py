"""Keys and values with the schemas of a registry: which columns, which schema, and what is refused before a row is sent."""

from __future__ import annotations

import json
import pickle
import urllib.request
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t

import spark_kafka_sink as sks
from spark_kafka_sink.errors import (
    KafkaSinkError,
    OptionError,
    RegistryError,
    SchemaError,
    SerializationError,
)
from spark_kafka_sink.options.record_options import record_options
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.spark.plan.resolved_schemas import resolved_options
from spark_kafka_sink.spark.plugin_checks import checked_options
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema, sink_schema
from tests.kafka.fixtures import BrokerKind, NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.kafka.witness import Witnessed, read_topic
from tests.planted_secrets import MARK
from tests.registry.stand_in import Answer, StandIn
from tests.spark.frames import options


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.embedded)])
def broker_kind(request: pytest.FixtureRequest) -> BrokerKind:
    """Embedded brokers: none of these tests is about Kafka."""
    kind: BrokerKind = request.param
    return kind


def written(kafka: Kafka, topic: str) -> list[Witnessed]:
    return sorted(read_topic(kafka.bootstrap_servers, topic), key=lambda one: one.key or b"")


@pytest.fixture
def topic(kafka: Kafka, new_topic: NewTopic) -> str:
    return new_topic()


Settings = Callable[..., dict[str, str]]


@pytest.fixture
def settings(kafka: Kafka, topic: str, stand_in: StandIn) -> Settings:
    """Returns the sink's options for values in Avro, with more of them. In a name, `__` stands for a dot."""

    def made(**more: str) -> dict[str, str]:
        found = options(kafka, topic=topic, value__format="avro", schema__registry__url=stand_in.url)
        return found | {name.replace("__", "."): value for name, value in more.items()}

    return made


@pytest.mark.spark
def test_structs_and_primitives_have_schemas_of_their_own_and_tombstones_have_none(
    spark: SparkSession, kafka: Kafka, topic: str, stand_in: StandIn, settings: Settings
) -> None:
    df = spark.range(0, 4, 1, 1).selectExpr(
        "id AS key", "IF(id = 1, NULL, named_struct('n', int(id))) AS value", "id = 2 AS gone"
    )
    sks.publish(df, options=settings(key__format="avro", tombstone__column="gone"), progress=False)
    assert [(one.key, one.value) for one in written(kafka, topic)] == [
        (b"\0\0\0\0\1\0", b"\0\0\0\0\2\0"),
        (b"\0\0\0\0\1\2", None),
        (b"\0\0\0\0\1\4", None),
        (b"\0\0\0\0\1\6", b"\0\0\0\0\2\6"),
    ]
    bodies = [asked.json["schema"] for asked in stand_in.requests if asked.path.partition("?")[0].endswith("-key/versions")]
    assert '"long"' in bodies[0]


@pytest.mark.spark
def test_the_registry_is_asked_by_the_driver_alone_and_not_again_by_foreach_batch(
    spark: SparkSession, kafka: Kafka, topic: str, stand_in: StandIn, settings: Settings
) -> None:
    writer = sks.foreach_batch(settings())
    df = spark.range(0, 4, 1, 2).selectExpr("id")
    writer(df, 0)
    asked = len(stand_in.requests)
    stand_in.login = "none that exists"  # the registry refuses everything from now on
    writer(df, 1)
    assert len(stand_in.requests) == asked
    assert len(written(kafka, topic)) == 8


ID = t.StructType([t.StructField("id", t.LongType(), False, {"comment": "The order."})])


def columns_and(given: SinkOptions) -> tuple[SinkOptions, SinkSchema, t.StructType]:
    return given, sink_schema(ID, given.topic, record=given.record, formats=given.formats), ID


def test_what_tasks_get_holds_no_secret_and_no_address(stand_in: StandIn) -> None:
    stand_in.login = "Basic YWxpY2U6aHVudGVyMg=="
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events"}
    login = {"schema.registry.url": stand_in.url, "basic.auth.user.info": f"alice:{MARK}"}
    given = sink_options({**servers, "value.format": "avro", **login})
    assert MARK not in repr(given)
    found = resolved_options(*columns_and(given))
    pickled = pickle.dumps(found)
    assert MARK.encode() not in pickled
    assert str(stand_in.port).encode() not in pickled
    assert pickle.loads(pickled) == found
    assert '"doc": "The order."' in found.producer.value_serializer.schema.text  # type: ignore[attr-defined]


COLORS = """{"type": "record", "name": "R", "fields": [
  {"name": "color", "type": {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}}
]}"""


@pytest.mark.spark
def test_a_row_that_does_not_fit_leaves_nothing_under_exactly_once(
    spark: SparkSession, kafka: Kafka, topic: str, settings: Settings
) -> None:
    df = spark.range(0, 20, 1, 2).selectExpr("IF(id = 17, 'GREEN', 'RED') AS color")
    given = settings(value__schema=COLORS)
    given |= {"delivery.guarantee": "exactly-once", "commit.log.topic": "schemas-log"}
    with pytest.raises(SerializationError, match=r"value: row 7: color: the text is not a symbol of enum"):
        sks.publish(df, options=given, progress=False)
    assert read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed") == []


def test_the_latest_schema_and_one_by_its_id_are_used_as_they_are(stand_in: StandIn) -> None:
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "schema.registry.url": stand_in.url}
    own = sink_options({**servers, "value.format": "avro"})
    first = resolved_options(*columns_and(own))
    for way in ({"use.latest.version": "true"}, {"value.use.schema.id": "1"}):
        found = resolved_options(*columns_and(sink_options({**servers, "value.format": "avro", **way})))
        assert found.producer.value_serializer.schema.text == first.producer.value_serializer.schema.text  # type: ignore[attr-defined]
    latest = sink_options({**servers, "topic": "others", "value.format": "avro", "use.latest.version": "true"})
    with pytest.raises(RegistryError, match="subject others-value: the registry has no such subject"):
        resolved_options(*columns_and(latest))


RULES = {"domainRules": [{"name": "ssn", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}]}
TEXT = '{"type": "record", "name": "events_value", "fields": [{"name": "id", "type": "long"}]}'
INLINE = TEXT.replace('"long"', '"long", "confluent:rules": [{"name": "r"}]')


@pytest.mark.parametrize(
    ("more", "answers", "rule"),
    [
        ({}, [None, None, {"schema": TEXT, "ruleSet": RULES}], r"ssn \(ENCRYPT\)"),
        ({"use.latest.version": "true"}, [{"subject": "s", "version": 1, "id": 1, "schema": TEXT, "ruleSet": RULES}], "ssn"),
        ({"use.schema.id": "1"}, [{"schema": INLINE}], r"id \(confluent:rules\)"),
    ],
)
def test_a_schema_with_rules_is_refused(stand_in: StandIn, more: dict[str, str], answers: list[Any], rule: str) -> None:
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "schema.registry.url": stand_in.url}
    if not more:
        resolved_options(*columns_and(sink_options({**servers, "value.format": "avro"})))
    stand_in.fail(*((lambda asked: None) if body is None else Answer(body=body) for body in answers))
    with pytest.raises(SchemaError, match=rf"has rules, which are not supported: .*{rule}"):
        resolved_options(*columns_and(sink_options({**servers, "value.format": "avro", **more})))


def test_a_subject_whose_latest_schema_has_rules_gets_no_version_without_them(stand_in: StandIn) -> None:
    body = {"schema": TEXT, "ruleSet": RULES}
    request = urllib.request.Request(f"{stand_in.url}/subjects/events-value/versions", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30):
        asked = len(stand_in.requests)
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "schema.registry.url": stand_in.url}
    with pytest.raises(
        SchemaError, match=r"value: schema 1 of subject events-value has rules, which are not supported: ssn \(ENCRYPT\)"
    ):
        resolved_options(*columns_and(sink_options({**servers, "value.format": "avro"})))
    assert not any(one.path.partition("?")[0].endswith("/versions") for one in stand_in.requests[asked:])


def test_a_given_schema_with_rules_of_its_own_is_refused_before_it_is_registered(stand_in: StandIn) -> None:
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "schema.registry.url": stand_in.url}
    escaped = INLINE.replace("confluent:rules", "confluent\\u003arules")
    with pytest.raises(SchemaError, match=r"value: option value\.schema: the schema has rules"):
        resolved_options(*columns_and(sink_options({**servers, "value.format": "avro", "value.schema": escaped})))
    assert not stand_in.requests


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"value.format": "avro"}, "schema.registry.url"),
        ({"schema.registry.url": "http://r"}, "option schema.registry.url: has no effect without value.format or key.format"),
        ({"key.schema": "x", "value.format": "avro", "schema.registry.url": "http://r"}, "has no effect without key.format"),
        ({"kafka.schema.registry.url": "http://r"}, "did you mean schema.registry.url?"),
        ({"kafka.value.serializer": "avro"}, "option kafka.value.serializer: use value.format=avro"),
        (
            {"value.format": "avro", "kafka.value.serializer": "json", "schema.registry.url": "http://r"},
            "option value.format: cannot be combined with kafka.value.serializer",
        ),
        ({"value.fromat": "avro"}, "did you mean value.format?"),
        (
            {"kafka.value.format": "avro", "schema.registry.url": "http://r"},
            "unknown option kafka.value.format; did you mean value.format?",
        ),
    ],
)
def test_wrong_options_are_refused_on_the_driver(more: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        checked_options({"kafka.bootstrap.servers": "localhost:9092", **more})
    assert text in caught.value.message


def test_partition_writer_names_what_to_use_instead() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "value.format": "avro", "schema.registry.url": "http://r"}
    with pytest.raises(OptionError, match=r"partition_writer does not support it.*use publish\(df"):
        sks.partition_writer(given)


@pytest.mark.spark
def test_nothing_is_registered_while_kafka_cannot_be_reached(spark: SparkSession, stand_in: StandIn, settings: Settings) -> None:
    (port,) = free_ports(1)
    away = {"kafka.bootstrap.servers": f"localhost:{port}", "kafka.max.block.ms": "500"}
    for write in (
        lambda: sks.publish(spark.range(1), options=settings() | away),
        lambda: sks.foreach_batch(settings() | away)(spark.range(1), 0),
    ):
        with pytest.raises(KafkaSinkError):
            write()
    assert not stand_in.requests


def found_columns(*names: str, record: Mapping[str, str] = MappingProxyType({}), case_sensitive: bool = False) -> SinkSchema:
    schema = t.StructType([t.StructField(name, t.StringType()) for name in names])
    return sink_schema(schema, "events", record=record_options(record), formats=("key", "value"), case_sensitive=case_sensitive)


def test_the_value_is_made_of_the_columns_that_have_no_other_use() -> None:
    found = found_columns("a", "key", "topic", "b", "tenant", record={"key.columns": "key,tenant"})
    assert found.key == ColumnGroup((1, 4), ("key", "tenant"), as_json=False)
    assert found.value == ColumnGroup((0, 2, 3), ("a", "topic", "b"), as_json=False), "the option topic is set"
    assert found_columns("a", "Topic", case_sensitive=True).value == ColumnGroup((0, 1), ("a", "Topic"), as_json=False)
    assert found_columns("a", "value").value == 1
    with pytest.raises(SchemaError, match=r"all columns have another use; add one for the value, or set value\.columns"):
        found_columns("key")


@pytest.mark.parametrize("name", ["value", "a"])
def test_a_column_without_an_arrow_type_names_the_cast(name: str) -> None:
    schema = t.StructType([t.StructField(name, t.VariantType())])
    with pytest.raises(SchemaError, match=rf"column {name}: is variant, which has no type in a schema; use to_json\({name}\)"):
        sink_schema(schema, "events", formats=("value",))


def test_a_format_of_keys_needs_a_key(stand_in: StandIn) -> None:
    servers = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events", "schema.registry.url": stand_in.url}
    with pytest.raises(SchemaError, match=r"option key\.format: there is no column key; add one or set key\.columns"):
        resolved_options(*columns_and(sink_options({**servers, "key.format": "avro", "value.format": "avro"})))
