"""`spark-kafka-sink verify`: a topic is compared with a source, or all its records are decoded; each end has its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.verify.read_back import consumer_settings
from tests.kafka.ports import free_ports
from tests.planted_secrets import MARK, SECRET, USER
from tests.registry.stand_in import Answer, StandIn

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(sasl_users={USER: SECRET})) as made:
        yield made


@pytest.fixture
def client(broker: EmbeddedBroker, tmp_path: Path) -> Path:
    """A file of --command-config, with a login."""
    file = tmp_path / "client.properties"
    settings = {name: value.replace("\\", 2 * "\\") for name, value in broker.client_settings.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return file


@pytest.fixture
def topic(broker: EmbeddedBroker, stand_in: StandIn) -> str:
    """A topic with two orders and a tombstone."""
    name = broker.create_topic(f"orders-{stand_in.port}", 1)
    registry = {"value.serializer": "avro", "value.schema": SCHEMA, "schema.registry.url": stand_in.url}
    with Producer({**broker.client_settings, **registry}) as producer:
        for number, value in enumerate(({"id": 1, "at": "a"}, {"id": 2, "at": "b"}, None)):
            producer.send(name, value, key=b"%d" % number)
    return name


def produce(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    with Producer(dict(broker.client_settings)) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def verified(topic: str, client: Path, url: str, *arguments: str) -> Result:
    return CliRunner().invoke(
        main,
        ["verify", "--topic", topic, "--command-config", str(client), "--schema-registry-url", url, *arguments],
        catch_exceptions=False,
    )


def test_records_that_can_be_decoded_are_counted_by_schema(topic: str, client: Path, stand_in: StandIn) -> None:
    done = verified(topic, client, stand_in.url)

    assert done.exit_code == 0, done.output
    expected = f"topic {topic}: every value can be decoded\n3 records\nvalue: 2 with schema 1 (AVRO)\nvalue: 1 null\n"
    expected += "key: not decoded, because key.format is not set\n"
    assert done.stdout == expected


def test_a_terminal_sees_how_far_it_is(topic: str, client: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(topic, client, stand_in.url).stderr == ""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: True, raising=False)
    assert "records  [####################################]  3/3" in verified(topic, client, stand_in.url).stderr


def test_bad_records_are_named_by_partition_and_offset(
    broker: EmbeddedBroker, topic: str, client: Path, stand_in: StandIn
) -> None:
    produce(broker, topic, b"text", b"\0\0\0\0\x09abc", b"\0\0\0\0\x01\x02\x40a")

    done = verified(topic, client, stand_in.url, "-o", "value.format=avro")

    assert done.exit_code == 4, done.output
    assert f"topic {topic}: BAD RECORDS\n6 records\n" in done.stdout
    assert "3 cannot be decoded\n" in done.stdout
    cannot = "the value cannot be decoded"
    assert f"partition 0, offset 3: {cannot}: does not begin with a schema id (4 bytes)\n" in done.stdout
    assert f"partition 0, offset 4: {cannot}: the registry does not have its schema 9\n" in done.stdout
    assert f"partition 0, offset 5: {cannot}: schema 1: " in done.stdout
    report = json.loads(verified(topic, client, stand_in.url, "--json", "--examples", "1").stdout)
    assert (report["records"], report["bad"], report["schemas"]) == (6, 3, {"value": {"1": 2}})
    assert [one["offset"] for one in report["examples"]] == [3]


def test_records_of_another_format_are_bad(topic: str, client: Path, stand_in: StandIn) -> None:
    done = verified(topic, client, stand_in.url, "--set", "key.format=avro")
    assert done.exit_code == 4, done.output
    assert "the key cannot be decoded: does not begin with a schema id (1 bytes)" in done.stdout


def test_a_registry_that_cannot_be_used_is_exit_code_3(topic: str, client: Path, stand_in: StandIn) -> None:
    stand_in.fail(Answer(401, {"error_code": 401, "message": "Unauthorized"}))
    login = f"schema.registry.basic.auth.user.info={USER}:{SECRET}"
    refused = verified(topic, client, stand_in.url, "--set", login)
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    down = verified(topic, client, nobody, "-o", "schema.registry.max.retries=0")

    assert (refused.exit_code, down.exit_code) == (3, 3)
    assert refused.stderr.startswith("Error: [REGISTRY] could not get the schema with id 1: ")
    assert "HTTP 401" in refused.stderr
    assert down.stderr.startswith("Error: [REGISTRY] ")
    assert nobody in down.stderr
    assert MARK not in refused.output + down.output


def test_a_broker_that_cannot_be_reached_is_exit_code_3(client: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_kafka_sink.verify.read_back.REQUEST_TIMEOUT_S", 1.0)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    done = verified("orders", client, stand_in.url, "--bootstrap-servers", nobody)
    assert done.exit_code == 3
    assert f"[READ_BACK] topic orders at {nobody} cannot be read: " in done.stderr
    assert MARK not in done.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "nonsense"], "Invalid value for --set: must be NAME=VALUE"),
        (["--from-timestamp", "noon"], "'noon' is not a time, such as 2026-11-24T00:00:00Z"),
        (["--select", "id"], "--select and --source-option need --source"),
        (["--source", "x", "--columns", "valu"], "'valu' is not one of key, value, headers, timestamp, partition"),
        (["--source", "x", "-o", "value.fromat=avro"], "unknown option value.fromat; did you mean value.format?"),
        (["--source", "x", "-o", "kafka.value.serializer=uuid"], "records of UUIDSerializer cannot be read back"),
    ],
)
def test_wrong_options_are_exit_code_2(client: Path, arguments: list[str], problem: str) -> None:
    words = ["verify", "--topic", "t", "--command-config", str(client), *arguments]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 2, done.output
    assert problem in done.stderr


def test_a_source_or_a_registry_is_required(client: Path) -> None:
    done = CliRunner().invoke(main, ["verify", "--topic", "t", "--command-config", str(client)], catch_exceptions=False)
    assert done.exit_code == 2
    assert "set --source to compare the topic, or --schema-registry-url to decode its records" in done.stderr


def test_parts_that_are_not_decoded_are_named(topic: str, client: Path, stand_in: StandIn) -> None:
    done = verified(topic, client, stand_in.url, "-o", "key.format=avro")
    assert "value: not decoded, because value.format is not set" in done.stdout
    assert "every record" not in done.stdout


def test_records_before_a_time_are_left_out(topic: str, client: Path, stand_in: StandIn) -> None:
    done = verified(topic, client, stand_in.url, "--from-timestamp", "2100-01-01T00:00:00Z")
    assert done.exit_code == 5, done.output
    assert done.stdout == f"topic {topic}: NO RECORDS since 2100-01-01T00:00:00Z, so nothing was verified\n0 records\n"


def test_a_topic_without_records_is_not_verified(broker: EmbeddedBroker, client: Path, stand_in: StandIn) -> None:
    empty = broker.create_topic(f"empty-{stand_in.port}", 2)
    done = verified(empty, client, stand_in.url)
    report = verified(empty, client, stand_in.url, "--json")
    assert (done.exit_code, report.exit_code) == (5, 5), done.output
    assert done.stdout == f"topic {empty}: NO RECORDS, so nothing was verified\n0 records\n"
    assert json.loads(report.stdout)["records"] == 0


def test_records_that_were_removed_are_counted(broker: EmbeddedBroker, topic: str, client: Path, stand_in: StandIn) -> None:
    admin = AdminClient({**consumer_settings(producer_config(broker.client_settings))})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        deleted.result(10)
    done = verified(topic, client, stand_in.url)
    assert done.exit_code == 5, done.output
    assert "0 records\n3 offsets are no longer there; Kafka removes records that are older than " in done.stdout


IN_ONE_PROCESS = """
import json, sys
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark_kafka_sink.cli.main import main

*others, last = json.loads(sys.argv[1])
stop, SparkSession.stop = SparkSession.stop, lambda session: None  # they share one, as a new one takes seconds
ends = [CliRunner().invoke(main, words) for words in others]
SparkSession.stop = stop
ends.append(CliRunner().invoke(main, last))
print(json.dumps([[end.exit_code, end.stdout, end.stderr] for end in ends]))
"""
SPARK = {
    "spark.master": "local[1]",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # so does the compiler that makes long runs fast
}
