"""Fixtures for tests of programs that use Kafka: `kafka_broker`, a broker in the test's process, and `kafka_topic`.

pytest loads this wherever the package is installed, so nothing is imported, made or started until a test asks for a fixture.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka, embedded (spark-kafka-sink)")
    group.addoption("--kafka-brokers", type=int, default=None, metavar="N", help="how many brokers `kafka_broker` has")
    group.addoption("--kafka-like", default=None, metavar="RELEASE", help="the release of Kafka that `kafka_broker` looks like")
    parser.addini("kafka_brokers", "how many brokers the fixture `kafka_broker` has (default: 1)", default="1")
    parser.addini("kafka_like", "the release of Kafka that `kafka_broker` looks like, such as 3.7 (default: the newest known)")
    parser.addini(
        "kafka_tls", "whether connections to `kafka_broker` are encrypted (`kafka_broker.client_settings`)", type="bool"
    )
    parser.addini("kafka_users", "who can log in to `kafka_broker`, each as user=password; then all must", type="linelist")
    parser.addini("kafka_acls", "who may do what, each as arguments of kafka-acls; then nobody may do more", type="linelist")
    parser.addini("kafka_settings", "settings of Kafka's for `kafka_broker`, each as name=value", type="linelist")


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker in this process for the whole run, in memory: `kafka_broker.bootstrap_servers` is where clients find it.

    Tests share it, so they make topics of their own (`kafka_topic`); faults that a test sets (`kafka_broker.faults`) it also
    removes. How many brokers there are is `--kafka-brokers` or the ini option `kafka_brokers`; which release of Kafka they look
    like is `--kafka-like` or `kafka_like`. With `kafka_tls` or `kafka_users`, clients need `kafka_broker.client_settings`.
    """
    from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
    from spark_kafka_sink.broker.server_properties import config_from
    from spark_kafka_sink.errors import KafkaSinkError

    ini = request.config.getini
    settings = dict(_pair(line) for line in ini("kafka_settings"))
    acls = ini("kafka_acls") or None
    try:
        users = dict(_user(line) for line in ini("kafka_users"))
        config = config_from(settings, sasl_users=users, acls=acls)
        embedded = EmbeddedBroker(_brokers(request.config), config=config, like=_like(request.config), tls=ini("kafka_tls"))
    except (KafkaSinkError, pytest.UsageError) as error:
        # Where it was raised tells nobody anything: the mistake is in pytest's settings.
        pytest.fail(f"kafka_broker: {error}", pytrace=False)
    with embedded as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: EmbeddedBroker) -> Callable[..., str]:
    """Makes a topic that no other test has, and gives its name: `kafka_topic()`, `kafka_topic(partitions=8)`,
    `kafka_topic(configs={"cleanup.policy": "compact"})`, `kafka_topic(replication_factor=3)`."""

    def make(partitions: int = 1, **options: Any) -> str:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:60]
        return kafka_broker.create_topic(f"{name}-{next(_numbers)}", partitions, **options)

    return make


def _brokers(config: pytest.Config) -> int:
    given = config.getoption("kafka_brokers")
    try:
        return int(config.getini("kafka_brokers")) if given is None else given
    except ValueError:
        raise pytest.UsageError(f"kafka_brokers: {config.getini('kafka_brokers')!r} is not a number") from None


def _like(config: pytest.Config) -> str | None:
    return config.getoption("kafka_like") or config.getini("kafka_like") or None


def _user(line: str) -> tuple[str, str]:
    name, password = _pair(line)
    if not name or not password:
        raise pytest.UsageError(f"kafka_users: {name or 'a line'} has no password: write user=password")
    return name, password


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.strip(), value.strip()
