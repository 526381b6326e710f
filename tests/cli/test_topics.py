"""`spark-kafka-sink topics`: topics are created, listed and described, and their newest records are printed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.broker.acl import parse_acls
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.configs import DescribeConfigsResourceResult
from spark_kafka_sink.protocol.apis.topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.kafka.fixtures import NewTopic, on_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.network.black_hole import black_hole
from tests.registry.stand_in import Answer, StandIn
from tests.waiting import until

Values = Sequence[str]


def run(servers: str, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["topics", command, "--bootstrap-servers", servers, *arguments])


def done(servers: str, command: str, *arguments: str) -> str:
    result = run(servers, command, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def told(servers: str, command: str, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in done(servers, command, "--json", *arguments).splitlines()]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def sent(servers: str, topic: str, values: Values, *, partition: int = 0, start: int = 0) -> None:
    """Sends a record per value, a millisecond apart."""
    with Producer({"bootstrap.servers": servers}) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value=value.encode(), partition=partition, timestamp=1_700_000_000_000 + start + number)


def values_of(servers: str, *arguments: str) -> list[object]:
    return [record["value"] for record in told(servers, "tail", *arguments)]


# create, list, describe


@on_real_kafka
def test_a_topic_is_created_and_described(kafka: Kafka) -> None:
    servers, topic = kafka.bootstrap_servers, f"test-{os.getpid()}-{uuid.uuid4()}"
    configs = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=7000")
    assert done(servers, "create", topic, *configs) == f"Topic {topic} was created with 2 partitions.\n"
    try:
        sent(servers, topic, ["a", "b", "c"], partition=1)
        (found,) = told(servers, "describe", topic)
        assert found["configs"] == {"retention.ms": "7000"}
        assert found["partitions"] == [
            {"partition": 0, "leader": 1, "replicas": [1], "in_sync": [1], "first_offset": 0, "next_offset": 0},
            {"partition": 1, "leader": 1, "replicas": [1], "in_sync": [1], "first_offset": 0, "next_offset": 3},
        ]
        assert {"topic": topic, "partitions": 2, "replicas": 1} in told(servers, "list")
        again = run(servers, "create", topic)
        assert again.exit_code == 1
        assert "TOPIC_ALREADY_EXISTS" in again.stderr
        assert "exists already with 2 partitions" in done(servers, "create", topic, "--if-not-exists")
    finally:
        kafka.delete_topic(topic)


def test_text_is_a_table(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("table", 1, configs={"cleanup.policy": "compact"})
    assert ["table", "1", "1"] in [line.split() for line in done(servers, "list").splitlines()]
    lines = done(servers, "describe", "table").splitlines()
    assert lines[0] == "Topic table"
    assert lines[1].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "FIRST", "OFFSET", "NEXT", "OFFSET"]
    assert lines[2].split() == ["0", "1", "1", "1", "0", "0"]
    assert lines[3:] == ["Configs set on the topic:", "  cleanup.policy=compact"]


def test_internal_topics_are_listed_on_demand(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("_schemas")
    assert "_schemas" not in done(servers, "list")
    assert "_schemas" in done(servers, "list", "--internal")


def test_a_partition_without_a_leader_is_described() -> None:
    with EmbeddedBroker(2) as broker:
        broker.create_topic("events", 4)
        broker.kill(2)
        (found,) = told(broker.address(1), "describe", "events")
        text = done(broker.address(1), "describe", "events")
    partitions = found["partitions"]
    assert isinstance(partitions, list)
    assert {each["leader"] for each in partitions} == {1, None}
    assert "none" in text
    assert "?" in text


@pytest.mark.parametrize(
    ("command", "arguments", "text"),
    [
        ("create", ["new", "--replication-factor", "9"], "INVALID_REPLICATION_FACTOR"),
        ("create", ["new", "--config", "retention.ms=x"], "INVALID_CONFIG"),
        ("create", ["not valid"], "INVALID_TOPIC_EXCEPTION"),
        ("describe", ["missing"], "topic 'missing' does not exist"),
        ("tail", ["missing"], "topic 'missing' does not exist"),
    ],
)
def test_what_brokers_refuse_is_one_line(broker: EmbeddedBroker, command: str, arguments: list[str], text: str) -> None:
    refused = run(broker.bootstrap_servers, command, *arguments)
    assert refused.exit_code == 1
    assert text in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "arguments", "text"),
    [
        ("create", ["new", "--config", "retention.ms"], "Invalid value for --config: must be NAME=VALUE"),
        ("create", ["new", "--partitions", "0"], "0 is not in the range x>=1"),
        ("describe", [], "Missing argument 'NAME...'"),
        ("tail", ["new", "--command-config", "/nowhere"], "/nowhere cannot be read"),
    ],
)
def test_wrong_options_are_said(command: str, arguments: list[str], text: str) -> None:
    refused = run("b:1", command, *arguments)
    assert refused.exit_code == 2
    assert text in refused.stderr


@pytest.mark.parametrize("command", [["topics", "list"], ["topics", "tail", "new"], ["transactions", "list"]])
def test_brokers_that_do_not_answer_cost_no_more_than_the_time_and_are_one_line(command: list[str]) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    refused = CliRunner().invoke(main, [*command, "--bootstrap-servers", nobody, "--timeout", "0.3"])
    assert refused.exit_code == 1
    assert len(refused.stderr.splitlines()) == 1
    assert nobody in refused.stderr
    assert "Connection refused" in refused.stderr
    assert "; check the address, that the broker runs, and that no firewall is in the way" in refused.stderr


def test_a_broker_that_answers_too_late_is_not_blamed_on_the_address(broker: EmbeddedBroker) -> None:
    broker.create_topic("late")
    with broker.faults.hold(ApiKey.DESCRIBE_CONFIGS):
        refused = run(broker.bootstrap_servers, "describe", "late", "--timeout", "2")
    assert refused.exit_code == 1
    assert "[DEADLINE]" in refused.stderr
    assert "check the address" not in refused.stderr


def test_a_broker_that_never_answers_leaves_time_for_the_next(broker: EmbeddedBroker) -> None:
    broker.create_topic("found")
    with black_hole() as (host, port):
        assert "found" in done(f"{host}:{port},{broker.bootstrap_servers}", "list", "--timeout", "10")


def test_a_login_comes_from_the_file_and_a_missing_right_has_its_acl(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with EmbeddedBroker(config=BrokerConfig(sasl_users={"ana": "word"}, acls=[])) as broker:
        settings = {name: value for name, value in broker.client_settings.items() if name != "bootstrap.servers"}
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        refused = run(broker.bootstrap_servers, "create", "events", "--command-config", str(file))
        assert refused.exit_code == 1
        assert "User:ana is not authorized for Create" in refused.stderr
        broker.cluster.add_acls(parse_acls("--allow-principal User:ana --operation Create --operation Describe --topic events"))
        assert "was created" in done(broker.bootstrap_servers, "create", "events", "--command-config", str(file))
        described = run(broker.bootstrap_servers, "describe", "events", "--command-config", str(file))
        assert described.exit_code == 0
        assert "Note: [AUTHORIZATION]" in described.stderr


# tail


@on_real_kafka
def test_the_newest_records_are_printed_oldest_first(kafka: Kafka, new_topic: NewTopic) -> None:
    servers, topic = kafka.bootstrap_servers, new_topic(2)
    sent(servers, topic, [f"first {number}" for number in range(20)])
    sent(servers, topic, ["a", "b"], partition=1, start=100)
    assert values_of(servers, topic, "-n", "4") == ["first 18", "first 19", "a", "b"]
    assert values_of(servers, topic, "-n", "1", "-p", "0") == ["first 19"]
    assert len(values_of(servers, topic, "-n", "1000")) == 22
    assert values_of(servers, topic, "-n", "0") == []


def test_a_line_has_all_parts_of_a_record(broker: EmbeddedBroker) -> None:
    broker.create_topic("parts")
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send("parts", key=b"k", value=b"\xff\x00", headers=[("h", b"x"), ("n", None)], timestamp=1_700_000_000_000)
        producer.send("parts", key=None, value=b"", timestamp=1_700_000_000_001)
    assert done(broker.bootstrap_servers, "tail", "parts").splitlines() == [
        "0:0  2023-11-14T22:13:20.000Z  k  0xff00  h=x n=null",
        '0:1  2023-11-14T22:13:20.001Z  null  ""',
    ]


ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]}


@pytest.fixture
def orders(broker: EmbeddedBroker, stand_in: StandIn) -> str:
    """A topic of three records: an order, one that is cut, and a long number, which begins with zeros as well."""
    topic = broker.create_topic(f"orders-{stand_in.port}")
    registry = {"value.serializer": "avro", "value.schema": ORDER, "schema.registry.url": stand_in.url}
    with Producer({"bootstrap.servers": broker.bootstrap_servers, **registry}) as producer:
        producer.send(topic, {"id": -1, "at": "\x1bü"}, timestamp=1)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send(topic, b"\0\0\0\0\x01\x01", timestamp=2)
        producer.send(topic, (5).to_bytes(8, "big"), timestamp=3)
    return topic


def test_schema_ids_are_shown(broker: EmbeddedBroker, orders: str) -> None:
    lines = done(broker.bootstrap_servers, "tail", orders).splitlines()
    assert lines[0].endswith("  null  schema 1 0x01061bc3bc")
    assert lines[1].endswith("  null  schema 1 0x01")
    assert lines[2].endswith("  null  0x0000000000000005")
    assert [one.get("value_schema") for one in told(broker.bootstrap_servers, "tail", orders)] == [1, 1, None]


def test_records_are_decoded_with_a_registry(broker: EmbeddedBroker, orders: str, stand_in: StandIn) -> None:
    registry = ("--schema-registry-url", stand_in.url)
    lines = done(broker.bootstrap_servers, "tail", orders, *registry).splitlines()
    assert lines[0].endswith('  null  schema 1 {"id": -1, "at": "\\u001bü"}')
    assert "  null  schema 1 0x000000000101 (cannot be decoded: schema 1: " in lines[1]
    first, second, _ = told(broker.bootstrap_servers, "tail", orders, *registry)
    assert (first["value"], first["value_schema"]) == ({"id": -1, "at": "\x1bü"}, 1)
    assert str(second["value_problem"]).startswith("schema 1: ")


def test_a_registry_that_refuses_ends_tail_with_one_line(broker: EmbeddedBroker, orders: str, stand_in: StandIn) -> None:
    stand_in.fail(Answer(401, {"error_code": 401, "message": "Unauthorized"}))
    login = "schema.registry.basic.auth.user.info=ana:hunter2"
    result = run(broker.bootstrap_servers, "tail", orders, "--schema-registry-url", stand_in.url, "-o", login)
    assert result.exit_code == 1
    assert "HTTP 401" in result.stderr
    assert "hunter2" not in result.output
    assert run(broker.bootstrap_servers, "tail", orders, "-o", login).exit_code == 2


def test_a_terminal_is_safe_from_what_records_contain(broker: EmbeddedBroker) -> None:
    sent(broker.bootstrap_servers, "unsafe", ["\x1b[2J\r\nü", "\x9b2J\r\nü", "é" * 300])
    controls, safe, cut = done(broker.bootstrap_servers, "tail", "unsafe").splitlines()
    assert controls.endswith("null  0x1b5b324a0d0ac3bc")
    assert safe.endswith("null  \\x9b2J\\r\\nü")
    assert cut.endswith(f"null  {'é' * 200}... (600 bytes)")
    assert "é" * 300 in done(broker.bootstrap_servers, "tail", "unsafe", "--whole")


ESCAPES = "\x1b[2J\nspark_kafka_sink.errors.DeliveryError: [DELIVERY] \x9b"


def test_a_terminal_is_safe_from_what_brokers_answer(broker: EmbeddedBroker) -> None:
    broker.create_topic("named", 1)
    config = DescribeConfigsResourceResult(name="retention.ms", value=ESCAPES, read_only=False, config_source=1)

    def with_configs(_: object, response: Any) -> Any:
        return replace(response, results=[replace(response.results[0], configs=[config])])

    broker.faults.alter(ApiKey.DESCRIBE_CONFIGS, with_configs)
    broker.faults.fail(ApiKey.CREATE_TOPICS, ErrorCode.POLICY_VIOLATION, message=ESCAPES)
    for result in (run(broker.bootstrap_servers, "describe", "named"), run(broker.bootstrap_servers, "create", "refused")):
        shown = result.stdout + result.stderr
        assert "DELIVERY" in shown
        assert all(each.isprintable() for line in shown.split("\n") for each in line), repr(shown)
    assert len(shown.splitlines()) == 1


@on_real_kafka
def test_records_of_aborted_transactions_are_left_out(kafka: Kafka, new_topic: NewTopic) -> None:
    """The markers and the aborted records fill the end of the log, so the reader has to go back further."""
    servers, topic = kafka.bootstrap_servers, new_topic()
    sent(servers, topic, ["a", "b"])
    with Producer({"bootstrap.servers": servers, "transactional.id": f"tail-{topic}"}) as producer:
        producer.init_transactions()
        for number in range(5):
            producer.begin_transaction()
            producer.send(topic, value=f"aborted {number}".encode()).result(30)
            producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, value=b"committed")
        producer.commit_transaction()
    until(lambda: values_of(servers, topic, "-n", "2"), lambda found: found == ["b", "committed"], "the end of the transaction")
    assert values_of(servers, topic, "-n", "2", "--uncommitted") == ["aborted 4", "committed"]


def test_new_records_are_followed_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of another leader. The interrupt comes with the last value, as from a user who has seen it."""
    printed: list[str] = []
    seen = threading.Event()

    def print_or_interrupt(text: str) -> None:
        printed.append(text.rsplit("  ", maxsplit=1)[-1])
        seen.set()
        if printed[-1] == "last":
            raise KeyboardInterrupt

    monkeypatch.setattr(click, "echo", print_or_interrupt)
    with EmbeddedBroker(2) as broker:
        broker.create_topic("followed", 1, 2)
        sent(broker.bootstrap_servers, "followed", ["old"])

        def send_more() -> None:
            assert seen.wait(30)
            broker.kill(broker.leader("followed", 0))
            alive = broker.address(broker.leader("followed", 0))
            sent(alive, "followed", ["new"])
            sent(alive, "followed", ["last"])

        sender = threading.Thread(target=send_more)
        sender.start()
        result = run(broker.bootstrap_servers, "tail", "followed", "--follow", "--timeout", "30")
        sender.join(30)
    assert result.exit_code == 0, result.output
    assert printed == ["old", "new", "last"]


def test_a_topic_that_is_created_again_is_followed_from_its_start(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets start over, so those that were printed before say nothing about it."""
    printed: list[str] = []
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="again")])

    def print_and_go_on(text: str, err: bool = False) -> None:
        if err:
            return
        printed.append(text.rsplit("  ", maxsplit=1)[-1])
        if printed[-1] == "b":
            with ClusterClient(producer_config({"bootstrap.servers": broker.bootstrap_servers})) as client:
                deadline = time.monotonic() + 30
                client.ask_controller(DELETE_TOPICS, deletion, lambda _: 0, deadline)
            broker.create_topic("again", 1)
            sent(broker.bootstrap_servers, "again", ["last"])
        if printed[-1] == "last":
            raise KeyboardInterrupt

    monkeypatch.setattr(click, "echo", print_and_go_on)
    sent(broker.bootstrap_servers, "again", ["a", "b"])
    reader = threading.Timer(20, signal.raise_signal, [signal.SIGINT])
    reader.start()
    result = run(broker.bootstrap_servers, "tail", "again", "--follow", "--timeout", "30")
    reader.cancel()
    assert result.exit_code == 0, result.output
    assert printed == ["a", "b", "last"]


def test_a_leader_is_asked_for_all_its_offsets_at_once(broker: EmbeddedBroker) -> None:
    """A request for each partition would take longer than the time allowed for a topic of thousands."""
    broker.create_topic("wide", 50)
    asked: list[object] = []
    broker.faults.watch(ApiKey.LIST_OFFSETS, topic="wide", times=None, on_request=lambda _, body: asked.append(body))
    assert values_of(broker.bootstrap_servers, "wide") == []
    assert len(asked) == 2


def test_a_partition_that_does_not_answer_is_named(broker: EmbeddedBroker) -> None:
    """Its records are missing from what is printed, which must not look like all there is."""
    broker.create_topic("half", 2)
    for partition in (0, 1):
        sent(broker.bootstrap_servers, "half", [str(partition)], partition=partition)
    broker.faults.fail(ApiKey.LIST_OFFSETS, ErrorCode.LEADER_NOT_AVAILABLE, topic="half", partition=1, times=None)
    result = run(broker.bootstrap_servers, "tail", "half")
    assert [line.split("  ")[-1] for line in result.stdout.splitlines()] == ["0"]
    assert result.stderr == "Note: topic half: the records of partition 1 are left out, because no leader answers\n"


def test_a_leader_that_fails_is_asked_again(broker: EmbeddedBroker) -> None:
    sent(broker.bootstrap_servers, "retried", ["a"])
    broker.faults.fail(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="retried")
    assert values_of(broker.bootstrap_servers, "retried") == ["a"]


@pytest.mark.parametrize("arguments", [["check"], ["topics", "list"], ["transactions", "list"]])
def test_the_broker_of_this_machine_is_the_default(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """Whatever listens there, nothing is sent to it."""
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[object]:
        asked.append((host, port))
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert CliRunner().invoke(main, [*arguments, "--timeout", "0.3"]).exit_code == 1
    assert set(asked) == {("localhost", 9092)}


def test_the_file_may_name_the_brokers(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\n", encoding="utf-8")
    for arguments in (["topics", "list"], ["check"]):
        result = CliRunner().invoke(main, [*arguments, "--command-config", str(file), "--timeout", "100"])
        assert result.exit_code == 0, result.output
