"""`spark-kafka-sink broker`: its start and end, what survives it, and what it says where it cannot start."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.protocol.api import ApiKey
from tests.broker.network.client import Client
from tests.cli.command import BrokerProcess, ended, environment

pytestmark = pytest.mark.slow

QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}


def write(servers: str, topic: str, *values: str, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": servers, **QUIET, **settings})
    failed: list[str] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(str(error)))
    assert producer.flush(60) == 0
    assert failed == ["None"] * len(values)


def read(servers: str, topic: str, count: int, group: str = "readers") -> list[str]:
    """With a group, and its place committed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", **QUIET})
    try:
        consumer.subscribe([topic])
        got = [(message.value() or b"").decode() for message in consumer.consume(count, timeout=60)]
        consumer.commit(asynchronous=False)
        return got
    finally:
        consumer.close()


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_serves_a_client_and_ends_in_order_on_sigterm() -> None:
    with BrokerProcess("--port", "0") as broker:
        assert "data in memory; for development and tests, not for production (Ctrl+C stops it)" in broker.ready
        write(broker.address, "events", "a", "b")
        assert read(broker.address, "events", 2) == ["a", "b"]

        assert broker.signal(signal.SIGTERM) == 0
        assert not is_taken(broker.port)
        assert 'message="Broker 1 is down"' in broker.log


def test_it_loads_neither_spark_nor_arrow_and_the_commands_on_transactions_no_spark() -> None:
    """Arrow would take longer to load than all of the broker: it is to be ready in less than a second."""
    code = (
        "import sys, spark_kafka_sink.cli.run_broker\n"
        "print(sorted({'pyarrow', 'pyspark', 'pandas'} & set(sys.modules)))\n"
        "from spark_kafka_sink.cli.transactions import abort, list_transactions, resolve\n"
        "print(sorted({'pyspark', 'py4j', 'pandas'} & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout == "[]\n[]\n"


def test_a_folder_keeps_what_was_acked_when_it_is_killed(tmp_path: Path) -> None:
    with BrokerProcess("--port", "0", "--data-dir", str(tmp_path)) as broker:
        write(broker.address, "events", *map(str, range(100)), acks="all")
        assert broker.signal(signal.SIGKILL) == -signal.SIGKILL
    with BrokerProcess("--port", "0", "--data-dir", str(tmp_path)) as broker:
        assert read(broker.address, "events", 100) == [*map(str, range(100))]


def test_it_has_the_brokers_settings_release_registry_and_log_that_it_is_told_to_have() -> None:
    arguments = ["--brokers", "3", "--set", "num.partitions=5", "--like", "3.7", "--registry-port", "0"]
    with BrokerProcess("--port", "0", *arguments, "--verbose") as brokers:
        addresses = brokers.address.split(",")
        write(brokers.address, "events", "a")
        assert read(brokers.address, "events", 1) == ["a"]
        found = AdminClient({"bootstrap.servers": addresses[2], **QUIET}).list_topics(timeout=10)
        assert sorted(f"{node.host}:{node.port}" for node in found.brokers.values()) == sorted(addresses)
        assert len(found.topics["events"].partitions) == 5
        with Client(brokers.port) as client:
            newest = {each.api_key: each.max_version for each in client.api_versions().api_keys}
        assert (newest[ApiKey.PRODUCE], newest[ApiKey.END_TXN]) == (10, 3)
        registry = re.search(r"schema\.registry\.url=(http://127\.0\.0\.1:\d+),", brokers.ready)
        assert registry is not None, brokers.ready
        with SchemaRegistryClient({"url": registry[1]}) as schemas:
            assert schemas.register_schema("s", Schema('"int"', "AVRO")) == 1
        assert brokers.signal(signal.SIGTERM) == 0
        events = [dict(pair.split("=", 1) for pair in shlex.split(line)) for line in brokers.log.splitlines()]
    said = [event["message"] for event in events]
    assert {"topic": "events", "partitions": "5"}.items() <= events[said.index("Created topic events with 5 partitions")].items()
    for begin in ("Broker 1 is up at", "Preparing to rebalance group readers", "Stabilized group readers"):
        assert any(text.startswith(begin) for text in said), begin


def test_users_of_a_file_may_log_in_and_others_not_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("# who\nalice=se=cret\n\n")
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice"}
    with BrokerProcess("--port", "0", "--sasl-users", str(users)) as broker:
        write(broker.address, "events", "a", **sasl, **{"sasl.password": "se=cret"})
        refused = AdminClient({"bootstrap.servers": broker.address, **QUIET, **sasl, "sasl.password": "another"})
        with pytest.raises(KafkaException):
            refused.list_topics(timeout=1)
        assert broker.signal(signal.SIGINT) == 130  # as shells have it
        assert "se=cret" not in broker.log + broker.ready


@pytest.mark.parametrize("name", ["ca.pem", "client.pem"])
def test_with_tls_it_writes_over_no_file_of_others(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a key of which there is no copy")
    result = CliRunner().invoke(main, ["broker", "--port", "0", "--tls", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{name} exists and was not written by this command: choose another folder" in result.stderr
    assert (tmp_path / name).read_text() == "a key of which there is no copy"


def test_with_tls_it_writes_what_its_clients_need(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    earlier = "# Written by `spark-kafka-sink broker`, anew at each start. For tests only.\n"
    (folder / "client.pem").write_text(earlier)  # of an earlier run,
    (folder / "client.pem").chmod(0o644)  # and for all to read
    acl = "--allow-principal User:CN=client --producer --topic e --resource-pattern-type prefixed"
    with BrokerProcess("--port", "0", "--tls", str(folder), "--set", "ssl.client.auth=required", "--acl", acl) as broker:
        ca, own = folder / "ca.pem", folder / "client.pem"
        assert f"security.protocol=SSL, ssl.truststore.location={ca}, ssl.keystore.location={own}" in broker.ready
        tls = {"security.protocol": "SSL", "ssl.ca.location": str(ca)}
        mine = {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
        write(broker.address, "events", "a", **tls, **mine)
        with pytest.raises(AssertionError):
            write(broker.address, "secret", "a", **tls, **mine)
        assert own.stat().st_mode & 0o077 == 0
        assert "PRIVATE" not in broker.ready + broker.log
        assert broker.signal(signal.SIGTERM) == 0


def test_a_port_in_use_is_said_and_nothing_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = ended("broker", "--port", str(port))

    assert refused.returncode == 1
    assert refused.stderr == (
        f"Error: port {port} is already in use on 127.0.0.1: set --port to another port, or to 0 for any free one\n"
    )


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    def refused(folder: Path) -> str:
        done = CliRunner().invoke(main, ["broker", "--port", "0", "--data-dir", str(folder)])
        assert (done.exit_code, done.stdout) == (1, "")
        return done.stderr

    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cluster.json").write_text("{}")
    used = tmp_path / "used"
    with EmbeddedBroker(config=BrokerConfig(data_dir=used)):
        assert refused(used) == f"Error: {used} is in use by another broker: stop that broker or choose another folder\n"
    assert refused(tmp_path / "file").startswith(f"Error: could not use the folder {tmp_path / 'file'}: ")
    assert refused(tmp_path / "other").startswith(f"Error: could not read the data in {tmp_path / 'other'}: ")


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["--set", "num.io.thread=3"], "unknown setting num.io.thread; did you mean num.io.threads?", 2),
        (["--set", "num.io.threads=none"], "Invalid value none for configuration num.io.threads: Not a number of type INT", 2),
        (["--set", "num.io.threads"], "Invalid value for --set: must be NAME=VALUE", 2),
        (["--like", "2.0"], "Invalid value for --like: like='2.0' is not supported", 2),
        (["--set", "retention.ms=-7"], "Invalid value -7 for configuration retention.ms: Value must be at least -1", 2),
        (["--sasl-users", "/nowhere"], "/nowhere cannot be read: No such file or directory", 2),
        (["--brokers", "0"], "0 is not in the range 1<=x<=100", 2),
        (["--acl", "--allow-principal ana --operation Read --topic t"], "--acl: ACL", 2),
        (["--set", "ssl.client.auth=always"], "ssl.client.auth", 2),
        (["--set", "ssl.keystore.location=/none.pem"], "/none.pem cannot be read", 1),
    ],
)
def test_wrong_options_are_said(arguments: list[str], text: str, code: int) -> None:
    refused = CliRunner().invoke(main, ["broker", "--port", "0", *arguments])

    assert refused.exit_code == code
    assert text in refused.stderr


def test_the_line_of_a_password_is_named_and_not_shown(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice=1\nsecret-without-a-name\n")
    refused = CliRunner().invoke(main, ["broker", "--sasl-users", str(users)])

    assert refused.exit_code == 2
    assert f"line 2 of {users} must have the form user=password" in refused.stderr
    assert "secret" not in refused.stderr


@pytest.mark.whole("a process each; that it serves, ends, keeps a killed folder's records and shows no secret stays")
def test_another_address_than_loopback_is_warned_of() -> None:
    with BrokerProcess("--port", "0", "--host", "0.0.0.0", "--advertised-host", "127.0.0.1") as broker:
        assert broker.ready.startswith("Ready: bootstrap.servers=127.0.0.1:")
        write(broker.address, "events", "a")
        assert broker.signal(signal.SIGTERM) == 0
        assert broker.log.startswith(
            "Warning: the broker listens on 0.0.0.0, not only on loopback: anyone who can reach it can read and write"
        )
