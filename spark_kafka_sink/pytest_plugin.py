"""pytest fixtures for programs that use Kafka: `kafka_broker`, an embedded broker, `kafka_topic` and `kafka_schema_registry`.

pytest loads this module wherever the package is installed. Nothing is imported or started until a test requests a fixture.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
    from spark_kafka_sink.broker.registry.embedded_registry import EmbeddedRegistry

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka, embedded (spark-kafka-sink)")
    group.addoption("--kafka-brokers", type=int, default=None, metavar="N", help="number of brokers of `kafka_broker`")
    group.addoption("--kafka-like", default=None, metavar="RELEASE", help="Kafka release that `kafka_broker` emulates")
    parser.addini("kafka_brokers", "number of brokers of the fixture `kafka_broker` (default: 1)", default="1")
    parser.addini("kafka_like", "Kafka release that `kafka_broker` emulates, such as 3.7 (default: the newest known)")
    parser.addini(
        "kafka_tls", "whether connections to `kafka_broker` are encrypted (`kafka_broker.client_settings`)", type="bool"
    )
    parser.addini("kafka_users", "users of `kafka_broker`, each as user=password; clients must then log in", type="linelist")
    parser.addini(
        "kafka_acls",
        "ACLs of `kafka_broker`, each as arguments of kafka-acls; clients then need them for everything",
        type="linelist",
    )
    parser.addini("kafka_settings", "Kafka settings of `kafka_broker`, each as name=value", type="linelist")


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """Starts an embedded broker, in memory, for the whole test session.

    Clients connect to `kafka_broker.bootstrap_servers`. All tests share the broker, so each test creates its own topics
    (`kafka_topic`) and removes the faults that it sets (`kafka_broker.faults`).

    Set the number of brokers with `--kafka-brokers` or the ini option `kafka_brokers`. Set the Kafka release with `--kafka-like`
    or `kafka_like`. With `kafka_tls` or `kafka_users`, clients need `kafka_broker.client_settings`.

    Yields:
        The running broker.
    """
    from spark_kafka_sink.broker import EmbeddedBroker, config_from
    from spark_kafka_sink.errors import KafkaSinkError

    ini = request.config.getini
    settings = dict(_pair(line) for line in ini("kafka_settings"))
    acls = ini("kafka_acls") or None
    try:
        users = dict(_user(line) for line in ini("kafka_users"))
        config = config_from(settings, sasl_users=users, acls=acls)
        like = request.config.getoption("kafka_like") or ini("kafka_like") or None
        embedded = EmbeddedBroker(_brokers(request.config), config=config, like=like, tls=ini("kafka_tls"))
    except (KafkaSinkError, pytest.UsageError) as error:
        # The traceback is of no use: the mistake is in pytest's settings.
        pytest.fail(f"kafka_broker: {error}", pytrace=False)
    with embedded as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: EmbeddedBroker) -> Callable[..., str]:
    """Returns a function that creates a topic with a unique name and returns the name.

    Examples: `kafka_topic()`, `kafka_topic(partitions=8)`, `kafka_topic(configs={"cleanup.policy": "compact"})`,
    `kafka_topic(replication_factor=3)`.
    """

    def make(partitions: int = 1, **options: Any) -> str:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:60]
        return kafka_broker.create_topic(f"{name}-{next(_numbers)}", partitions, **options)

    return make


@pytest.fixture
def kafka_schema_registry() -> Iterator[EmbeddedRegistry]:
    """Starts an embedded schema registry, empty, for one test. Clients connect to `kafka_schema_registry.url`.

    Yields:
        The running registry.
    """
    from spark_kafka_sink.broker.registry.embedded_registry import EmbeddedRegistry

    with EmbeddedRegistry() as registry:
        yield registry


def _brokers(config: pytest.Config) -> int:
    given = config.getoption("kafka_brokers")
    try:
        return int(config.getini("kafka_brokers")) if given is None else given
    except ValueError:
        raise pytest.UsageError(f"kafka_brokers: {config.getini('kafka_brokers')!r} is not a number") from None


def _user(line: str) -> tuple[str, str]:
    name, password = _pair(line)
    if not name or not password:
        raise pytest.UsageError(f"kafka_users: {name or 'a line'} has no password: write user=password")
    return name, password


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.strip(), value.strip()
