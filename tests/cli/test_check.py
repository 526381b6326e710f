"""`spark-kafka-sink check`: its options, its output and its exit code. What it finds is in tests/spark/test_check.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.protocol.api import ApiKey
from tests.cli.command import environment
from tests.kafka.ports import free_ports
from tests.planted_secrets import MARK, SECRET, USER


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(sasl_users={USER: SECRET}, auto_create_topics_enable=False)) as made:
        made.create_topic("events", 3)
        yield made


@pytest.fixture
def config(broker: EmbeddedBroker, tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    settings = {
        name: value.replace("\\", 2 * "\\") for name, value in broker.client_settings.items() if name != "bootstrap.servers"
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return file


PATIENT = ("--timeout", "100")
"""Each wait has 30 s, and a connection 10 s. The last --timeout that is given counts."""


def checked(broker: EmbeddedBroker, config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["check", "--bootstrap-servers", broker.bootstrap_servers, "--command-config", str(config), *PATIENT, *arguments]
    )


def test_a_good_sink_is_ticks_and_exit_code_0(broker: EmbeddedBroker, config: Path) -> None:
    done = checked(broker, config, "--topic", "events")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("No problems found in ")
    assert "topic 'events' has 3 partitions" in done.stdout
    assert MARK not in done.output


def test_a_cross_is_exit_code_1(broker: EmbeddedBroker, config: Path) -> None:
    done = checked(broker, config, "--topic", "event")
    assert done.exit_code == 1
    assert "1 problem found" in done.stdout
    assert "did you mean events?" in done.stdout


def test_options_of_the_sink_are_taken(broker: EmbeddedBroker, config: Path) -> None:
    done = checked(broker, config, "--topic", "new", "--set", "topic.create.partitions=2", "--set", "kafka.acks=all", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert "the driver creates it" in next(one["text"] for one in report["checks"] if one["name"] == "topic")


def test_checks_that_had_no_time_are_exit_code_3(broker: EmbeddedBroker, config: Path) -> None:
    with broker.faults.hold(ApiKey.DESCRIBE_CONFIGS):
        done = checked(broker, config, "--topic", "events", "--timeout", "5")
    assert done.exit_code == 3, done.output
    assert "No problems found" in done.stdout
    assert "the time ran out before everything was checked" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bootstrap-servers", "b:1", "--set", "acks=all"], "did you mean kafka.acks?"),
        (["--bootstrap-servers", "b:1", "--set", SECRET], "Invalid value for --set: must be NAME=VALUE"),
        (["--set", "kafka.security.protocol=SSL", "--set", "kafka.ssl.ca.location=/nowhere"], "file '/nowhere' does not exist"),
        (["--bootstrap-servers", "b:1", "--timeout", "0"], "0.0 is not in the range"),
        (["--bootstrap-servers", "b:1", "--command-config", "/nowhere"], "/nowhere cannot be read"),
    ],
)
def test_wrong_options_are_exit_code_2(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["check", *arguments])
    assert done.exit_code == 2
    assert text in " ".join((done.stdout + done.stderr).split())
    assert MARK not in done.output


def test_a_terminal_without_unicode_gets_ascii() -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    done = CliRunner(charset="ascii").invoke(main, ["check", "--bootstrap-servers", servers, "--timeout", "0.5"])
    assert done.exit_code == 1
    assert "FAIL brokers" in done.stdout
    assert done.stderr == ""


def test_pyspark_need_not_be_installed(broker: EmbeddedBroker, config: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from spark_kafka_sink.cli.main import main; main()"
    servers = ("--bootstrap-servers", broker.bootstrap_servers, "--command-config", str(config))
    arguments = ["check", *servers, "--topic", "events", *PATIENT]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
