"""The commands, `check` and `topic.create.*` on each version of Kafka."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from spark_kafka_sink import Producer
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.client.api_versions import api_versions_request
from spark_kafka_sink.errors import BrokerError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.driver.check import check
from spark_kafka_sink.spark.driver.checks.report import Status
from spark_kafka_sink.spark.plan.first_contact import create_missing_topic
from tests.exactly_once.opened import client_of, soon
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import only_versions
from tests.kafka.kafka import has_leaders
from tests.kafka.versions import NEWEST, OLDEST, POMS
from tests.kafka.witness import read_topic

# What `check` calls them: 3.1 to 3.4 have the same APIs.
NAMES = {OLDEST: "2.1", "2.8": "2.8", "3.3": "3.1 to 3.4", "3.7": "3.7"}
WITHOUT_DESCRIPTIONS = (OLDEST, "2.8")


def run(cluster: KafkaCluster, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--bootstrap-servers", cluster.bootstrap_servers])


@only_versions(NEWEST, in_make_test=True)
def test_a_broker_that_is_asked_for_another_one_says_so(versioned_kafka: KafkaCluster) -> None:
    """KIP-1242, which embedded brokers do not have."""
    with client_of(versioned_kafka) as client:
        node = min(client.brokers(soon()))
        cluster_id = client.known().cluster_id
        named = ((cluster_id, node), ("another", node), (cluster_id, node + 100))
        codes = [client.ask(node, API_VERSIONS, api_versions_request(*each), soon()).error_code for each in named]
    assert codes == [0, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.REBOOTSTRAP_REQUIRED]


@only_versions(*sorted(POMS), whole="tests/cli/ runs the commands on the default version")
def test_topics_are_created_listed_described_and_read(kafka_version: str, versioned_kafka: KafkaCluster, topic: str) -> None:
    name = f"{topic}-commands"
    created = run(versioned_kafka, "topics", "create", name, "--partitions", "2", "--replication-factor", "1", "--json")
    assert json.loads(created.stdout) == {"topic": name, "created": True, "partitions": 2}
    with Producer({"bootstrap.servers": versioned_kafka.bootstrap_servers}) as producer:
        for number in range(3):
            producer.send(name, f"row {number}".encode(), partition=number % 2)

    assert name in run(versioned_kafka, "topics", "list").stdout
    described = json.loads(run(versioned_kafka, "topics", "describe", name, "--json").stdout)
    assert [each["next_offset"] for each in described["partitions"]] == [2, 1]
    read = run(versioned_kafka, "topics", "tail", name)
    assert sorted(line.rpartition("  ")[2] for line in read.stdout.splitlines()) == ["row 0", "row 1", "row 2"]


@only_versions(*sorted(POMS), whole="tests/cli/ runs the commands on the default version")
def test_open_transactions_are_listed_or_the_broker_is_said_to_be_too_old(
    kafka_version: str, versioned_kafka: KafkaCluster
) -> None:
    listed = run(versioned_kafka, "transactions", "list", "--prefix", "nobodys")
    if kafka_version in WITHOUT_DESCRIPTIONS:
        assert listed.exit_code == 1
        assert "requires Kafka 3.0 or newer" in listed.stderr
        assert f"has the APIs of Kafka {NAMES[kafka_version]}: it does not serve" in listed.stderr
    else:
        assert listed.exit_code == 0
        assert listed.stdout.startswith(("No transactions are open", "QUERY"))  # batches of other tests are in the commit log


@only_versions(*NAMES)
def test_exactly_once_is_refused_by_a_name_for_the_release(kafka_version: str, versioned_kafka: KafkaCluster) -> None:
    with client_of(versioned_kafka) as client, pytest.raises(UnsupportedVersionError) as raised:
        TransactionClient(client).check_brokers(soon())
    assert f"has the APIs of Kafka {NAMES[kafka_version]}: it supports EndTxn only up to v" in raised.value.message
    assert "set delivery.guarantee=at-least-once" in raised.value.message


@only_versions(OLDEST, in_make_test=True)
def test_the_oldest_brokers_store_rows_once_and_need_both_counts_of_a_new_topic(
    versioned_kafka: KafkaCluster, topic: str
) -> None:
    refused = run(versioned_kafka, "topics", "create", f"{topic}-without-counts")
    assert refused.exit_code == 1
    assert "brokers before Kafka 2.4 have no defaults: set --partitions and --replication-factor" in refused.stderr

    with Producer({"bootstrap.servers": versioned_kafka.bootstrap_servers, "compression.type": "zstd"}) as producer:
        for number in range(1_000):
            producer.send(topic, str(number).encode(), partition=0)
    assert [each.value for each in read_topic(versioned_kafka.direct_servers, topic)] == [b"%d" % n for n in range(1_000)]


# `check` and `topic.create.*` on each version of Kafka


@only_versions(OLDEST)
def test_a_topic_of_the_old_message_format_is_a_cross_and_its_rows_say_why(versioned_kafka: KafkaCluster, topic: str) -> None:
    old = versioned_kafka.create_topic(f"{topic}-old", 1, config={"message.format.version": "0.10.2"})
    report = check({"kafka.bootstrap.servers": versioned_kafka.bootstrap_servers, "topic": old}, timeout=30)
    (cross,) = (line for line in report.lines if line.status is Status.FAILED)
    assert "message.format.version=0.10.2" in cross.text
    assert "remove message.format.version from the topic's configs" in cross.to_do

    with (
        Producer({"bootstrap.servers": versioned_kafka.bootstrap_servers}) as producer,
        pytest.raises(BrokerError, match=r"UNSUPPORTED_FOR_MESSAGE_FORMAT.*remove that config from the topic"),
    ):
        producer.send(old, b"row").result(30)


def test_check_and_the_creation_of_a_topic(kafka_version: str, versioned_kafka: KafkaCluster, topic: str) -> None:
    servers = {"kafka.bootstrap.servers": versioned_kafka.bootstrap_servers}
    report = check({**servers, "topic": topic}, timeout=30)
    assert report.ok, str(report)
    assert {line.status for line in report.lines if line.name in ("brokers", "topic", "sizes")} == {Status.OK}
    name = f"{topic}-new"
    new = {**servers, "topic": name, "topic.create.partitions": "3", "topic.create.replication.factor": "1"}
    assert check(new, timeout=30).ok
    create_missing_topic(sink_options(new))
    # The other broker of the cluster hears of the topic a little later.
    versioned_kafka.wait_for(lambda: has_leaders(versioned_kafka.metadata(name).topics[name], 3), f"topic {name}", 30)
