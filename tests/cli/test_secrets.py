"""`spark-kafka-sink` prints no secret of a --command-config file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.cli.main import main
from tests.cli.command import ended
from tests.planted_secrets import FAILING, MARK, MISSPELLED, PLANTED, SECRET, USER, WRONG_PASSWORD


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Brokers that want a login, with the sink's commit log."""
    with EmbeddedBroker(config=BrokerConfig(sasl_users={USER: SECRET})) as broker:
        broker.create_topic("__spark_kafka_sink_commits")
        yield broker.bootstrap_servers


def properties(file: Path, options: Mapping[str, str]) -> Path:
    lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in options.items())
    file.write_text("".join(lines), encoding="utf-8")
    return file


def test_its_process_prints_none(servers: str, tmp_path: Path) -> None:
    file = properties(tmp_path / "client.properties", FAILING[WRONG_PASSWORD])
    done = ended("transactions", "list", "--bootstrap-servers", servers, "--command-config", str(file), "--timeout", "3")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) > 0
    assert MARK not in done.stdout + done.stderr


@pytest.mark.parametrize("command", [["check"], ["topics", "list"], ["transactions", "list"]])
@pytest.mark.parametrize("name", ["", MISSPELLED, "no-jaas", WRONG_PASSWORD, "no-reference", "certificates"])
def test_no_command_prints_one(servers: str, tmp_path: Path, command: list[str], name: str) -> None:
    file = properties(tmp_path / "client.properties", FAILING.get(name, PLANTED))
    arguments = [*command, "--bootstrap-servers", servers, "--command-config", str(file), "--timeout", "3" if name else "60"]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code == 0) == (not name), done.output
    assert MARK not in done.output
