"""`tail`: the newest records of a topic as a table."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.broker.acl import parse_acls
from spark_kafka_sink.errors import AuthorizationError, BrokerError, MetadataTimeoutError, OptionError, UsageError
from spark_kafka_sink.exactly_once import topic_reader
from spark_kafka_sink.protocol.api import ApiKey
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.registry.stand_in import StandIn
from tests.waiting import until

MOMENT_MS = time.time_ns() // 1_000_000 - 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def sent(kafka: Kafka, topic: str, count: int) -> None:
    with sks.Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for number in range(count):
            producer.send(
                topic, b"v%d" % number, key=b"k", partition=number % 2, timestamp=MOMENT_MS + number, headers=[("h", b"\xff")]
            )


def test_it_has_the_newest_records_of_all_partitions_oldest_first(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    sent(kafka, topic, 50)
    found = sks.tail(topic, 3, bootstrap_servers=kafka.bootstrap_servers)
    assert found.to_pylist() == [
        {
            "topic": topic,
            "partition": number % 2,
            "offset": number // 2,
            "timestamp": datetime.datetime.fromtimestamp((MOMENT_MS + number) / 1000, datetime.UTC),
            "key": b"k",
            "value": b"v%d" % number,
            "headers": [{"key": "h", "value": b"\xff"}],
        }
        for number in (47, 48, 49)
    ]
    assert found.schema.types == [
        *(pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", "UTC"), pa.binary(), pa.binary()),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ]
    of_one = sks.tail(topic, 2, options={"kafka.bootstrap.servers": kafka.bootstrap_servers}, partition=0)
    assert of_one["offset"].to_pylist() == [23, 24]


def test_a_topic_without_records_has_a_table_without_rows(kafka: Kafka, new_topic: NewTopic) -> None:
    assert sks.tail(new_topic(), bootstrap_servers=kafka.bootstrap_servers).num_rows == 0


@pytest.mark.parametrize(("uncommitted", "wanted"), [(False, [b"committed"]), (True, [b"aborted", b"committed"])])
def test_what_is_not_committed_is_left_out_unless_it_is_asked_for(
    kafka: Kafka, new_topic: NewTopic, uncommitted: bool, wanted: list[bytes]
) -> None:
    topic = new_topic()
    producer = ConfluentProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        end(30)

    def values() -> list[object]:
        found = sks.tail(topic, bootstrap_servers=kafka.bootstrap_servers, uncommitted=uncommitted)
        return list(found["value"].to_pylist())

    until(values, lambda found: found == wanted, f"{wanted}")  # EndTxn answers before its markers are there


def test_a_registry_decodes_what_names_a_schema_and_the_rest_is_text(stand_in: StandIn) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
        value = sks.AvroSerializer({"schema.registry.url": stand_in.url, "schema": schema})
        with sks.Producer(servers | {"value.serializer": value}) as producer:
            producer.send("t", {"a": 5}, key=b"k")
        with sks.Producer(servers) as producer:
            producer.send("t", b"\0\0\0\0\x09?", key=b"\xff")
            producer.send("t", None)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": stand_in.url}
        found = sks.tail("t", options=options)
    assert found["key"].to_pylist() == ["k", "0xff", None]
    first, unknown, missing = found["value"].to_pylist()
    assert (first, missing) == ('{"a": 5}', None)
    assert unknown.startswith("0x00000000093f (cannot be decoded: ")


def test_a_batch_of_many_compressed_bytes_is_shown() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", configs={"max.message.bytes": "40000000"})
        settings = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd", "max.request.size": "40000000"}
        with sks.Producer(settings) as producer:
            producer.send("t", bytes(30_000_000))
        assert len(sks.tail("t", bootstrap_servers=broker.bootstrap_servers)["value"][0].as_py()) == 30_000_000
        assert len(broker.records("t")[0].value or b"") == 30_000_000


def test_only_what_is_shown_counts_against_the_limit(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition is read for as many. It has too few at first, because half of its offsets are markers."""
    broker.create_topic("wide", 4)
    with sks.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "wide"}) as producer:
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            for partition in range(4):
                producer.send("wide", bytes(100_000), partition=partition)
            producer.commit_transaction()
    monkeypatch.setattr(topic_reader, "_MOST_BYTES", 700_000)
    assert sks.tail("wide", 5, bootstrap_servers=broker.bootstrap_servers).num_rows == 5
    with pytest.raises(UsageError, match=r"the newest 12 records take more than 0 MB; ask for fewer, or for one partition"):
        sks.tail("wide", 12, bootstrap_servers=broker.bootstrap_servers)


def test_records_that_compress_well_are_taken_a_few_at_a_time(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response of 16 MB may hold any number of bytes."""
    broker.create_topic("zeros")
    with sks.Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"}) as producer:
        for _ in range(9):
            producer.send("zeros", bytes(100_000))
    monkeypatch.setattr(topic_reader, "_TAKEN_BYTES", 250_000)
    asked: list[object] = []
    broker.faults.watch(ApiKey.FETCH, topic="zeros", times=None, on_request=lambda _, body: asked.append(body))
    assert sks.tail("zeros", bootstrap_servers=broker.bootstrap_servers)["offset"].to_pylist() == list(range(9))
    assert len(asked) == 3


def test_an_address_where_nobody_answers_is_said_as_soon_as_by_a_write() -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    options = {"kafka.bootstrap.servers": servers, "kafka.max.block.ms": 300}
    text = f"topic t: no broker of bootstrap.servers {servers} answered this program within 0.3 s: .*Connection refused"
    with pytest.raises(MetadataTimeoutError, match=text):
        sks.tail("t", options=options)


def test_a_missing_right_is_a_consumers() -> None:
    with EmbeddedBroker(config=BrokerConfig(sasl_users={"ana": "word"}, acls=[])) as broker:
        broker.create_topic("t")
        options = {f"kafka.{name}": value for name, value in broker.client_settings.items()}
        for operation in ("Describe", "Read"):
            with pytest.raises(AuthorizationError, match=f"User:ana is not authorized for {operation} on topic t; ") as raised:
                sks.tail("t", options=options)
            assert raised.value.facts["acl"].endswith(" --add --allow-principal User:ana --operation Read --topic t")
            broker.cluster.add_acls(parse_acls("--allow-principal User:ana --operation Write --topic t"))  # also describes it
            with sks.Producer(broker.client_settings) as producer:
                producer.send("t", b"v")


def test_wrong_arguments_and_topics_are_said(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with pytest.raises(UsageError, match="n must be 1 to 10,000, and it is 0"):
        sks.tail(topic, 0, bootstrap_servers=kafka.bootstrap_servers)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is required"):
        sks.tail(topic)
    with pytest.raises(BrokerError, match="has no partition 2"):
        sks.tail(topic, bootstrap_servers=kafka.bootstrap_servers, partition=2)
    with pytest.raises(OptionError, match=r"schema\.registry\.url: it is not set"):
        sks.tail(topic, options={"kafka.bootstrap.servers": "b:1", "schema.registry.basic.auth.user.info": "u:p"})
    with pytest.raises(BrokerError, match="no-such-topic"):
        sks.tail("no-such-topic", bootstrap_servers=kafka.bootstrap_servers)
