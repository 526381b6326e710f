"""The sink on librdkafka's mock cluster, with which programs test their clients: it has few APIs, and no transactions of its own.

It stands in for services that leave APIs out: nothing here may hang, and each error says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer as ConfluentProducer

from spark_kafka_sink import Producer
from spark_kafka_sink.cli.main import main
from tests.kafka.witness import read_topic

pytestmark = pytest.mark.slow

CODECS = ("none", "zstd")


@pytest.fixture
def servers() -> Iterator[str]:
    """The cluster's brokers. They live as long as the client that made them, and make each topic that is asked for."""
    made = ConfluentProducer({"test.mock.num.brokers": 3, "bootstrap.servers": "replaced", "log_level": 0})
    yield ",".join(f"{each.host}:{each.port}" for each in made.list_topics(timeout=10).brokers.values())
    del made


def run(servers: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--bootstrap-servers", servers])


@pytest.mark.parametrize("codec", CODECS)
def test_rows_arrive_once_and_in_order(servers: str, codec: str) -> None:
    with Producer({"bootstrap.servers": servers, "compression.type": codec, "batch.size": 1_000}) as producer:
        for number in range(500):
            producer.send("topic", str(number).encode(), partition=0)
    assert [each.value for each in read_topic(servers, "topic", partitions=[0])] == [b"%d" % number for number in range(500)]


def test_check_says_what_the_brokers_do_not_tell(servers: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send("topic", b"a row", partition=0)
    checked = run(servers, "check", "--topic", "topic")
    assert checked.exit_code == 0, checked.output
    assert "does not support DESCRIBE_CONFIGS" in checked.stdout
    assert "these brokers do not support it" in checked.stdout


def test_exactly_once_is_refused_and_the_commands_say_why(servers: str) -> None:
    checked = run(servers, "check", "--topic", "topic", "--set", "delivery.guarantee=exactly-once")
    assert checked.exit_code == 1
    assert "delivery.guarantee=at-least-once" in " ".join(checked.stdout.split())
    listed = run(servers, "transactions", "list")
    assert listed.exit_code == 1
    assert "it does not serve FindCoordinator and DescribeTransactions as needed" in listed.stderr


def test_topics_are_described_without_configs_and_not_created(servers: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send("topic", b"a row", partition=0)
    described = run(servers, "topics", "describe", "topic")
    assert described.exit_code == 0, described.output
    assert "does not support DESCRIBE_CONFIGS" in described.stderr
    created = run(servers, "topics", "create", "new")
    assert created.exit_code == 1
    assert "topic 'new' was not created" in created.stderr
    assert "create it with the tools of the service" in created.stderr
