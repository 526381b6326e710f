"""Brokers in this process: where they are, what survives them, what a killed one does, and that nothing is left of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

import spark_kafka_sink as sks
from spark_kafka_sink import broker as public
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import LOCK_FILE
from spark_kafka_sink.broker.cluster.metadata_image import TRANSACTION_STATE_TOPIC
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.kafka_release import NEWEST_RELEASE
from spark_kafka_sink.errors import OptionError, UsageError
from tests.broker.unharmed import no_thread_is_left
from tests.every import every
from tests.kafka.witness import read_topic
from tests.waiting import wait_until

QUIET = {"log_level": 0}


def write(servers: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "reconnect.backoff.max.ms": 200, **QUIET})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def read(servers: str, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in read_topic(servers, topic)]


@pytest.fixture
def three() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(3) as brokers:
        yield brokers


def test_it_listens_on_loopback_alone_unless_told_otherwise() -> None:
    with EmbeddedBroker() as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        with socket.socket() as other, pytest.raises(OSError, match=r"(?i)refused|unreachable"):
            other.settimeout(60)
            other.connect(("127.0.0.2", int(broker.bootstrap_servers.rpartition(":")[2])))


def test_a_folder_keeps_topics_and_records_over_a_restart_and_only_its_owner_can_read_them(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=tmp_path / "data")
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("t", 2, configs={"max.message.bytes": "2000"})
        write(broker.bootstrap_servers, "t", "a")
        before = broker.cluster.image.topics["t"]

    with EmbeddedBroker(config=config) as broker:
        after = broker.cluster.image.topics["t"]
        write(broker.bootstrap_servers, "t", "b")

        assert (after.topic_id, after.configs, len(after.partitions)) == (before.topic_id, before.configs, 2)
        assert read(broker.bootstrap_servers, "t") == ["a", "b"]

    kept = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert len(kept) > 10
    assert [path for path in kept if path.stat().st_mode & 0o077] == []


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=tmp_path)
    with EmbeddedBroker(config=config), pytest.raises(UsageError, match="in use by another broker"):
        EmbeddedBroker(config=config).start()
    with EmbeddedBroker(config=config):  # the first let go of it
        pass


def test_a_forked_process_does_not_keep_the_folder(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=tmp_path)
    with EmbeddedBroker(config=config):
        forked = os.dup(_open_as(tmp_path / LOCK_FILE))  # a child would have the same open file
    try:
        with EmbeddedBroker(config=config):
            pass
    finally:
        os.close(forked)


def _open_as(path: Path) -> int:
    return next(int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.exists() and fd.readlink() == path)


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_behind() -> None:
    with no_thread_is_left(), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            EmbeddedBroker(port=taken.getsockname()[1]).start()


def test_its_end_leaves_no_thread_and_frees_its_ports() -> None:
    with no_thread_is_left(), EmbeddedBroker(3) as brokers:
        addresses = [brokers.address(node) for node in brokers.broker_ids]
    for address in addresses:
        host, _, port = address.rpartition(":")
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((host, int(port)))


def test_before_its_start_and_after_its_end_it_says_so() -> None:
    broker = EmbeddedBroker()
    assert repr(broker) == f"<EmbeddedBroker not started, 1 broker, like Kafka {NEWEST_RELEASE}, in memory>"
    with pytest.raises(UsageError, match="not started"):
        broker.create_topic("t")
    with broker:
        assert repr(broker).startswith(f"<EmbeddedBroker {broker.bootstrap_servers}, ")
    with pytest.raises(UsageError, match="not started"):
        broker.create_topic("t")


def test_its_repr_counts_brokers_and_topics_of_users() -> None:
    with EmbeddedBroker(2, like="3.7") as broker:
        addresses = broker.bootstrap_servers
        broker.create_topic("t")
        broker.cluster.internal_topic(TRANSACTION_STATE_TOPIC)
        assert repr(broker) == f"<EmbeddedBroker {addresses}, 2 brokers, 1 topic, like Kafka 3.7, in memory>"
        broker.create_topic("u")
        broker.kill(2)
        assert repr(broker) == f"<EmbeddedBroker {addresses}, 2 brokers (1 stopped), 2 topics, like Kafka 3.7, in memory>"


def test_leaders_are_spread(three: EmbeddedBroker) -> None:
    three.create_topic("t", 6, 2)
    assert sorted(three.leader("t", index) for index in range(6)) == [1, 1, 2, 2, 3, 3]


def test_a_killed_leader_s_partition_goes_on_at_another_and_comes_back_to_the_same_address(three: EmbeddedBroker) -> None:
    three.create_topic("t", 1, 3)
    write(three.bootstrap_servers, "t", "a")
    killed = three.leader("t")
    address = three.address(killed)

    three.kill(killed)
    assert three.leader("t") not in (killed, -1)
    write(three.bootstrap_servers, "t", "b")
    three.restart(killed)
    three.move_leader("t", 0, killed)

    write(three.bootstrap_servers, "t", "c")
    assert three.address(killed) == address
    assert read(three.bootstrap_servers, "t") == ["a", "b", "c"]


def test_clients_are_told_the_advertised_address() -> None:
    with EmbeddedBroker(advertised={1: ("localhost", 12345)}) as broker:
        assert broker.bootstrap_servers == "localhost:12345"
        assert told_to_a_client(broker.address(1)) == "localhost:12345"


def told_to_a_client(address: str) -> str:
    """A client that has heard of the other address may leave this one before it has asked what it was asked to."""
    for _ in range(10):
        try:
            seen = AdminClient({"bootstrap.servers": address, **QUIET}).list_topics(timeout=5).brokers[1]
        except KafkaException:
            continue
        return f"{seen.host}:{seen.port}"
    raise AssertionError("no client got an answer")


def test_who_begins_at_the_direct_servers_is_sent_past_what_is_advertised() -> None:
    """Whatever it asks for: metadata, a coordinator, the cluster."""
    with EmbeddedBroker(advertised={1: ("localhost", 12345)}) as broker:
        direct = broker.direct_servers
        broker.create_topic("t")
        write(direct, "t", "a")
        assert read(direct, "t") == ["a"]
        admin = AdminClient({"bootstrap.servers": direct, **QUIET})
        (node,) = admin.describe_cluster(request_timeout=60).result(60).nodes
        described = admin.describe_consumer_groups(["g"], request_timeout=60)["g"].result(60)
        assert f"{node.host}:{node.port}" == direct
        assert f"{described.coordinator.host}:{described.coordinator.port}" == direct
        broker.kill(1)
        broker.restart(1)
        assert broker.direct_servers == direct


def test_a_broker_that_there_is_not_is_said(three: EmbeddedBroker) -> None:
    for method in (three.kill, three.restart, three.address, three.server):
        with pytest.raises(OptionError, match="there is no broker 4; the brokers are 1, 2, 3"):
            method(4)


@every("name", public.__all__)
def test_what_is_exported_is_there(name: str) -> None:
    assert name in dir(public)
    assert getattr(public, name).__name__ == name


def test_its_records_are_what_a_reader_of_committed_ones_gets() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(30)
        for value, end in (("a", producer.abort_transaction), ("b", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce("t", value, key="k", partition=1, timestamp=5, headers={"h": b"1"})
            producer.flush(30)
            end(30)
        with sks.Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"}) as other:
            other.send("t", None, partition=0, timestamp=6)
        # A commit is answered before its marker is written.
        wait_until(lambda: len(broker.records("t")) == 2)
        assert broker.records("t") == [(0, 0, 6, None, None, ()), (1, 2, 5, b"k", b"b", (("h", b"1"),))]
        assert broker.records("t")[1].value == b"b"
        with pytest.raises(UsageError, match="there is no topic u; the topics are "):
            broker.records("u")
