"""The producer's Avro serializer: which requests it makes of the registry, and what goes to Kafka."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from spark_kafka_sink import AvroSerializer, Producer, RecordColumns, installation
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    InstallationError,
    KafkaSinkError,
    OptionError,
    RegistryError,
    RegistryTimeoutError,
    SchemaError,
    SchemaIncompatibleError,
    SerializationError,
    UsageError,
)
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText
from tests.every import every
from tests.kafka.witness import read_topic
from tests.planted_secrets import MARK
from tests.registry.stand_in import Answer, Asked, StandIn
from tests.security.sasl.http_servers import raw_server, silent
from tests.waiting import HOUR_MS

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
STRUCT = pa.struct([pa.field("id", pa.int64(), False)])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def test_records_and_columns_have_the_schema_of_their_topic(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    for topic in ("one", "two"):
        broker.create_topic(topic)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.serializer": "io.confluent.kafka.serializers.KafkaAvroSerializer",
        "key.schema": '"string"',
        "value.serializer": "avro",
        "value.schema": ORDER,
        "schema.registry.url": stand_in.url,
    }
    with Producer(settings) as producer:
        producer.send("one", {"id": 1}, key="a")
        producer.send("one", {"id": 2}, key="b")
        producer.send("one", None, key="c")
        producer.send("two", {"id": 3})
        with producer.scope() as scope:
            scope.append("two", RecordColumns(num_records=1, value=pa.array([{"id": 4}], STRUCT)))
            scope.flush()
    assert [(one.key, one.value) for one in read_topic(broker.bootstrap_servers, "one")] == [
        (b"\0\0\0\0\1\2a", b"\0\0\0\0\2\2"),
        (b"\0\0\0\0\1\2b", b"\0\0\0\0\2\4"),
        (b"\0\0\0\0\1\2c", None),
    ]
    assert {one.value for one in read_topic(broker.bootstrap_servers, "two")} == {b"\0\0\0\0\2\6", b"\0\0\0\0\2\x08"}
    registered = [asked.path for asked in stand_in.requests if asked.path.partition("?")[0].endswith("/versions")]
    subjects = [path.split("/")[-2] for path in registered if path.startswith("/subjects")]
    assert subjects == ["one-key", "one-value", "two-value"]


def test_columns_derive_a_schema_and_single_values_do_not(stand_in: StandIn) -> None:
    serializer = AvroSerializer({"schema.registry.url": stand_in.url})
    assert serializer.serialize_column("events", pa.array([{"id": 1}, None], STRUCT)).to_pylist() == [b"\0\0\0\0\1\2", None]
    assert serializer.serialize_column("events", pa.nulls(2)).null_count == 2
    with pytest.raises(SchemaError, match=r"a single value does not show the types of a schema; set value\.schema"):
        serializer.serialize("events", {"id": 1})
    serializer.close()


def test_rows_are_written_with_the_schema_that_the_registry_gives_to_readers(stand_in: StandIn) -> None:
    """A registry that normalizes may know a schema with another order of fields under the same id."""
    fields = [{"name": name, "type": "string"} for name in "ab"]

    def swapped(asked: Asked) -> Answer | None:
        if not asked.path.startswith("/schemas/ids/"):
            return None
        return Answer(body={"schema": json.dumps({"type": "record", "name": "R", "fields": fields[::-1]})})

    stand_in.fail(*[swapped] * 10)
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    serializer = AvroSerializer({"schema.registry.url": stand_in.url, "schema": schema})
    assert serializer.serialize("events", {"a": "AA", "b": "B"}) == b"\0\0\0\0\1\2B\4AA"
    serializer.close()


@pytest.mark.parametrize("text", ["string", '"string"'])
def test_a_registry_may_write_a_primitive_type_without_quotes(stand_in: StandIn, text: str) -> None:
    stand_in.fail(Answer(body={"schema": text}))
    serializer = AvroSerializer({"schema.registry.url": stand_in.url, "use.schema.id": "1"})
    assert serializer.serialize("events", "a") == b"\0\0\0\0\1\2a"
    serializer.close()


def test_the_registry_is_asked_once_by_many_threads(stand_in: StandIn) -> None:
    serializer = AvroSerializer({"schema.registry.url": stand_in.url, "schema": json.dumps(ORDER)})
    threads = [threading.Thread(target=serializer.serialize, args=("events", {"id": number})) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({asked.path for asked in stand_in.requests}) == len(stand_in.requests)
    serializer.close()


def test_a_failed_request_is_made_again_for_the_next_record(stand_in: StandIn) -> None:
    options = {"schema.registry.url": stand_in.url, "schema": ORDER, "basic.auth.user.info": f"alice:{MARK}"}
    serializer = AvroSerializer(options)
    stand_in.login = "Basic of somebody else"
    with pytest.raises(RegistryError) as caught:
        serializer.serialize("events", {"id": 1})
    assert MARK not in f"{caught.value} {caught.value!r} {caught.value.facts} {serializer!r}"
    stand_in.login = None
    assert serializer.serialize("events", {"id": 1}) == b"\0\0\0\0\1\2"
    serializer.close()


def test_an_error_of_the_registry_reaches_the_caller_of_send(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "value.serializer": "avro",
        "value.use.latest.version": True,
        "schema.registry.url": stand_in.url,
    }
    with Producer(settings) as producer, pytest.raises(RegistryError, match="subject none-value: the registry has no such"):
        producer.send("none", {"id": 1})


def test_a_callback_does_not_wait_for_the_registry(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    broker.create_topic("first")
    broker.create_topic("second")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "value.serializer": "avro",
        "value.schema": ORDER,
        "schema.registry.url": stand_in.url,
    }
    found: list[KafkaSinkError] = []
    with Producer(settings) as producer:

        def answered(*_: Any) -> None:
            try:
                producer.send("second", {"id": 2})
            except KafkaSinkError as error:
                found.append(error)

        producer.send("first", {"id": 1}, on_completion=answered).result(30)
        producer.flush()
    assert [type(error) for error in found] == [RegistryError]
    assert "a callback must not wait" in found[0].message


def test_settings_show_no_secret_and_other_plug_ins_do_not_get_them(stand_in: StandIn) -> None:
    from spark_kafka_sink import producer_config

    config = producer_config(
        {
            "bootstrap.servers": "localhost:9092",
            "value.serializer": "avro",
            "schema.registry.url": stand_in.url,
            "basic.auth.user.info": f"alice:{MARK}",
        }
    )
    assert MARK not in f"{config!r} {config.settings()!r}"
    assert hash(config) == hash(config)


def test_an_object_needs_its_options_and_is_not_pickled() -> None:
    with pytest.raises(OptionError, match="an object needs its own options"):
        AvroSerializer().serialize("events", 1)
    with pytest.raises(
        OptionError, match=r"option key\.serializer: this AvroSerializer is for values; make one with is_key=True"
    ):
        Producer({"bootstrap.servers": "localhost:9092", "key.serializer": AvroSerializer({"schema.registry.url": "http://r"})})
    with pytest.raises(TypeError, match=r"set value\.format=avro"):
        pickle.dumps(AvroSerializer({"schema.registry.url": "http://r"}))
    with pytest.raises(OptionError, match=r"unknown option normalise\.schemas; did you mean normalize\.schemas"):
        AvroSerializer({"schema.registry.url": "http://r", "normalise.schemas": True})
    with pytest.raises(OptionError, match=r"unknown option shema; did you mean schema\?"):
        AvroSerializer({"schema.registry.url": "http://r", "shema": ORDER})


@pytest.mark.parametrize(("part", "other"), [("key", "value"), ("value", "key")])
def test_an_object_refuses_options_of_the_other_part(part: str, other: str) -> None:
    options = {"schema.registry.url": "http://r", f"{other}.schema": ORDER}
    wanted = rf"option {other}\.schema: this AvroSerializer is for {part}s, so it has no effect; use schema, or make one with"
    with pytest.raises(OptionError, match=f"{wanted} is_key={part != 'key'}"):
        AvroSerializer(options, is_key=part == "key")
    AvroSerializer({"schema.registry.url": "http://r", f"{part}.schema": ORDER}, is_key=part == "key").close()


@pytest.mark.parametrize("way", ["columns", "single"])
def test_a_missing_extra_is_an_error_of_the_installation(
    broker: EmbeddedBroker, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(installation, "is_installed", lambda _: False)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "value.serializer": "protobuf",
        "value.schema": 'syntax = "proto3"; message Order { int64 id = 1; }',
        "schema.registry.url": stand_in.url,
    }
    wanted = r"the format protobuf needs .*pip install 'spark-kafka-sink\[protobuf\]'"
    with Producer(settings) as producer, producer.scope() as scope, pytest.raises(InstallationError, match=wanted):
        if way == "single":
            producer.send("events", {"id": 1})
        else:
            scope.append("events", RecordColumns(num_records=1, value=pa.array([{"id": 1}], STRUCT)))
    assert stand_in.requests == []


@every(
    "more, problem",
    [
        ({"value.serializer": "avro"}, r"option schema\.registry\.url: "),
        ({"schema.registry.url": "http://r"}, r"option schema\.registry\.url: only the serializers avro, "),
        ({"value.serializer": "json", "value.schema": "{}"}, r"option value\.schema: only the serializers avro, "),
        ({"value.serializer": "avor"}, "did you mean avro"),
        (
            {"value.serializer": "avro", "schema.registry.url": "http://r", "key.schema": '"int"'},
            r"option key\.schema: has no effect without key\.serializer; set it to avro or ",
        ),
        (
            {"value.serializer": "avro", "key.serializer": "avro", "schema.registry.url": "http://r", "use.schema.id": 3},
            r"option use\.schema\.id: keys and values both have a schema; set key\.use\.schema\.id and value",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        Producer({"bootstrap.servers": "localhost:9092", **more})


def test_a_schema_of_the_registry_may_use_others(stand_in: StandIn) -> None:
    inner = {"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "a.Outer", "fields": [{"name": "inner", "type": "a.Inner"}]}
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        client.register("inner", SchemaText("AVRO", json.dumps(inner)))
        used = (SchemaReference("a.Inner", "inner", 1),)
        client.register("events-value", SchemaText("AVRO", json.dumps(outer), used))
    serializer = AvroSerializer({"schema.registry.url": stand_in.url, "use.latest.version": True})
    assert serializer.serialize("events", {"inner": {"x": 3}}) == b"\0\0\0\0\2\6"
    column = pa.array([{"inner": {"x": 3}}])
    assert serializer.serialize_column("events", column).to_pylist() == [b"\0\0\0\0\2\6"]
    with pytest.raises(SerializationError, match=r"inner\.x: a value of type str is not supported"):
        serializer.serialize("events", {"inner": {"x": MARK}})
    serializer.close()


# Keys and values together


def subjects_registered(stand_in: StandIn) -> list[str]:
    paths = [asked.path.partition("?")[0] for asked in stand_in.requests if asked.method == "POST"]
    return [path.split("/")[2] for path in paths if path.startswith("/subjects/") and path.endswith("/versions")]


@pytest.mark.parametrize("way", ["columns", "single"])
def test_a_value_that_does_not_fit_leaves_no_schema_of_the_key(broker: EmbeddedBroker, stand_in: StandIn, way: str) -> None:
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        client.register("events-value", SchemaText("AVRO", json.dumps(ORDER)))
    other = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.serializer": "avro",
        "key.schema": '"string"',
        "value.serializer": "avro",
        "schema.registry.url": stand_in.url,
    }
    with Producer({**settings, "value.schema": other}) as producer, producer.scope() as scope:
        for _ in range(2):
            if way == "single":
                with pytest.raises(SchemaIncompatibleError, match="id: was long, is string"):
                    producer.send("events", {"id": "a"}, key="a")
            else:
                with pytest.raises(SchemaError, match="id: column int64, schema string"):
                    columns = RecordColumns(num_records=1, key=pa.array(["a"]), value=pa.array([{"id": 1}], STRUCT))
                    scope.append("events", columns)
    assert subjects_registered(stand_in) == ["events-value"]


def test_rules_that_a_subject_gets_while_the_other_part_fails_are_kept(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    """The key's schema is found at the first call, and would be registered at the second: over the rules of its subject."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.serializer": "avro",
        "value.serializer": "avro",
        "value.use.latest.version": True,
        "schema.registry.url": stand_in.url,
    }
    columns = RecordColumns(num_records=1, key=pa.array(["a"]), value=pa.array([{"id": 1}], STRUCT))
    with Producer(settings) as producer, producer.scope() as scope:
        with pytest.raises(RegistryError, match="the registry has no such subject"):
            scope.append("events", columns)
        rules = {"domainRules": [{"name": "ssn", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}]}
        with SchemaRegistryClient({"url": stand_in.url}) as theirs:
            theirs.register_schema("events-value", Schema.from_dict({"schema": json.dumps(ORDER), "schemaType": "AVRO"}))
            theirs.register_schema("events-key", Schema.from_dict({"schema": '"string"', "schemaType": "AVRO", "ruleSet": rules}))
        with pytest.raises(SchemaError, match=r"schema \d of subject events-key has rules"):
            scope.append("events", columns)
    assert subjects_registered(stand_in) == ["events-value", "events-key"]


def test_the_key_of_a_tombstone_needs_no_schema_of_values(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    broker.create_topic("tombstones")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.serializer": "avro",
        "key.schema": '"string"',
        "value.serializer": "avro",
        "schema.registry.url": stand_in.url,
    }
    with Producer(settings) as producer, producer.scope() as scope:
        producer.send("tombstones", None, key="a").result(30)
        scope.append("tombstones", RecordColumns(num_records=1, key=pa.array(["a"]), value=pa.nulls(1)))
        scope.flush()
    assert subjects_registered(stand_in) == ["tombstones-key"]


# Time, threads and the end


def test_a_topic_does_not_wait_for_another_and_close_waits_for_none(stand_in: StandIn) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def held(_: Asked) -> None:
        asked.set()
        assert goes_on.wait(30)

    serializer = AvroSerializer({"schema.registry.url": stand_in.url, "schema": ORDER})
    stand_in.fail(held)
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(serializer.serialize, "slow", {"id": 1})
        try:
            assert asked.wait(30)
            assert threads.submit(serializer.serialize, "fast", {"id": 1}).result(30) == b"\0\0\0\0\1\2"
            threads.submit(serializer.close).result(30)
        finally:
            goes_on.set()
        with pytest.raises(UsageError, match="closed"):
            waiting.result(30)
    for topic in ("slow", "fast", "new"):
        with pytest.raises(UsageError, match="this AvroSerializer is closed; a producer closes its serializers"):
            serializer.serialize(topic, {"id": 1})


def test_a_closed_serializer_is_not_used_by_another_producer(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    broker.create_topic("closed")
    serializer = AvroSerializer({"schema.registry.url": stand_in.url, "schema": ORDER})
    settings = {"bootstrap.servers": broker.bootstrap_servers, "value.serializer": serializer}
    with Producer(settings) as producer:
        producer.send("closed", {"id": 1})
    with Producer(settings) as producer, pytest.raises(UsageError, match="this AvroSerializer is closed"):
        producer.send("closed", {"id": 1})


def test_send_waits_for_the_registry_for_as_long_as_max_block_ms(broker: EmbeddedBroker) -> None:
    with raw_server(silent) as url:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "max.block.ms": 200,
            "value.serializer": "avro",
            "value.schema": ORDER,
            "schema.registry.url": url,
            "schema.registry.request.timeout.ms": HOUR_MS,
        }
        with Producer(settings) as producer:
            # Used up before the first request, if the machine was busy for as long.
            with pytest.raises(RegistryTimeoutError, match=r"did not respond in time|was used up"):
                producer.send("events", {"id": 1})
            with producer.scope() as scope, pytest.raises(RegistryTimeoutError, match=r"did not respond in time|was used up"):
                scope.append("events", RecordColumns(num_records=1, value=pa.array([{"id": 4}], STRUCT)))


def test_key_and_value_share_the_time_of_a_call(broker: EmbeddedBroker, stand_in: StandIn) -> None:
    def slow(_: Asked) -> None:
        time.sleep(0.3)

    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "max.block.ms": 500,
        "key.serializer": "avro",
        "key.schema": '"string"',
        "value.serializer": "avro",
        "value.schema": ORDER,
        "schema.registry.url": stand_in.url,
    }
    stand_in.fail(slow, *[lambda _: None] * 2, slow)  # the key asks three times before the value does
    with Producer(settings) as producer, pytest.raises(RegistryTimeoutError):
        producer.send("events", {"id": 1}, key="a")
