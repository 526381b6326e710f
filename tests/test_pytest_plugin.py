"""The pytest plugin, in runs of its own, as users' projects have them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.command import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PLUGIN = "spark_kafka_sink.pytest_plugin"

TESTS = """
from confluent_kafka import Consumer, Producer


def test_a_record_comes_back(kafka_broker, kafka_topic):
    topic = kafka_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(topic, b"value", partition=1)
    assert producer.flush(60) == 0
    consumer = Consumer({
        "bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"
    })
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, timeout=60)
    consumer.close()
    assert (message.partition(), message.value()) == (1, b"value")


def test_topics_are_the_tests_own(kafka_broker, kafka_topic):
    assert len({kafka_topic(), kafka_topic(), kafka_topic(configs={"retention.ms": "-1"})}) == 3
    assert len(kafka_broker.cluster.image.topics) >= 3


def test_there_are_as_many_brokers_as_were_asked_for(kafka_broker):
    assert kafka_broker.broker_ids == BROKERS
"""

WITHOUT_KAFKA = """
import sys


def test_nothing():
    loaded = [name for name in sys.modules if name.startswith("spark_kafka_sink")]
    assert sorted(loaded) == ["spark_kafka_sink", "spark_kafka_sink.pytest_plugin", "spark_kafka_sink.version"]
    assert "numpy" not in sys.modules
"""


def run(folder: Path, *arguments: str, installed: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`installed`: a folder where packages are found by what they say of themselves."""
    loaded = ["-p", PLUGIN] if installed is None else []
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:randomly", "-p", "no:cacheprovider", *loaded, *arguments]
    variables = environment()
    if installed is not None:
        variables["PYTHONPATH"] += f":{installed}"
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)


def test_a_run_has_a_broker_and_topics(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace("BROKERS", "[1]"))
    ended = run(tmp_path)

    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("arguments", "brokers", "release"),
    [([], "[1, 2, 3]", "3.9"), (["--kafka-brokers", "2", "--kafka-like", "3.7"], "[1, 2]", "3.7")],
)
def test_the_number_of_brokers_and_the_release_are_options(
    tmp_path: Path, arguments: list[str], brokers: str, release: str
) -> None:
    settings = "kafka_brokers = 3\nkafka_like = 3.9\nkafka_settings =\n    num.partitions=4\n    num.io.threads=2\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{settings}")
    test = f"\n\ndef test_release(kafka_broker):\n    assert kafka_broker.cluster.config.like == {release!r}\n"
    (tmp_path / "test_it.py").write_text(TESTS.replace("BROKERS", brokers) + test)
    ended = run(tmp_path, "-k", "brokers or own or release", *arguments)

    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr


SECURE = """
from confluent_kafka import Producer


def write(broker, user, topic):
    outcomes = []
    producer = Producer({**broker.client_settings_for(user, librdkafka=True), "message.timeout.ms": 60000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error and error.name()))
    producer.flush(60)
    return outcomes


def test_users_over_tls_with_rights(kafka_broker):
    assert kafka_broker.client_settings["security.protocol"] == "SASL_SSL"
    for topic in ("events", "secret"):
        kafka_broker.create_topic(topic)
    assert write(kafka_broker, "ana", "events") == [None]
    assert write(kafka_broker, "ana", "secret") == ["TOPIC_AUTHORIZATION_FAILED"]
"""


def test_security_is_an_option(tmp_path: Path) -> None:
    users, acls = "kafka_users =\n    ana=se=cret", "kafka_acls =\n    --allow-principal User:ana --producer --topic events"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nkafka_tls = true\n{users}\n{acls}\n")
    (tmp_path / "test_it.py").write_text(SECURE)
    ended = run(tmp_path)

    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("kafka_settings =\n    num.partition=4", "unknown setting num.partition; did you mean num.partitions?"),
        ("kafka_users = ana", "kafka_users: ana has no password: write user=password"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(tmp_path: Path, settings: str, text: str) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    (tmp_path / "test_it.py").write_text(TESTS.replace("BROKERS", "[1]"))
    ended = run(tmp_path, "-k", "brokers")

    assert text in ended.stdout
    assert "pytest_plugin.py" not in ended.stdout
    assert ended.returncode == 1


def test_a_run_without_kafka_imports_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(WITHOUT_KAFKA)
    ended = run(tmp_path)

    assert "1 passed" in ended.stdout, ended.stdout


@pytest.mark.parametrize("arguments", [[], ["-p", PLUGIN]], ids=["found", "named as well"])
def test_where_the_package_is_installed_the_plugin_is_found(tmp_path: Path, arguments: list[str]) -> None:
    described = tmp_path / "packages" / "installed-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    plugins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    (described / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{name} = {of}\n" for name, of in plugins.items()))
    (tmp_path / "test_it.py").write_text(TESTS.replace("BROKERS", "[1]"))
    ended = run(tmp_path, *arguments, "-k", "own", installed=described.parent)

    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_an_installed_package_has_the_plugin_and_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugins, commands = project["entry-points"]["pytest11"], project["scripts"]

    # By its own name, or who names it with -p as well would load it twice.
    assert plugins == {PLUGIN: PLUGIN}
    assert importlib.import_module(PLUGIN).kafka_broker is not None
    module, _, function = commands["spark-kafka-sink"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
