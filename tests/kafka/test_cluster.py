"""A cluster of our own: it serves, survives what tests do to it, and is gone after it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.kafka import cluster, ports
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import NewTopic
from tests.kafka.ports import HIGHEST, LOWEST, free_ports
from tests.kafka.witness import read_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def produce(bootstrap_servers: str, topic: str, values: list[bytes], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


@pytest.mark.whole("a tool of the tests, which every test on three brokers uses")
def test_a_killed_broker_comes_back_to_its_address_and_its_data(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=kafka3)
    address = kafka3.address(2)
    produce(kafka3.bootstrap_servers, topic, [b"kept"])
    kafka3.kill(2)
    kafka3.restart(2)
    assert kafka3.address(2) == address
    assert 2 in kafka3.metadata().brokers
    assert (kafka3.log_dir(2) / f"{topic}-0").is_dir()


@pytest.mark.whole("a tool of the tests, which every test on three brokers uses")
def test_a_paused_broker_answers_once_it_is_resumed(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=kafka3)
    leader = kafka3.leader(topic)
    producer = Producer({"bootstrap.servers": kafka3.bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"first")
    assert producer.flush(30) == 0
    kafka3.pause(leader)
    producer.produce(topic, b"held")
    assert producer.flush(0.5) == 1
    kafka3.resume(leader)
    assert producer.flush(30) == 0
    assert [record.value for record in read_topic(kafka3.direct_servers, topic)] == [b"first", b"held"]


@pytest.mark.whole("a tool of the tests, which every test on three brokers uses")
def test_heal_brings_back_whatever_is_down(kafka3: Brokers, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=kafka3)
    kafka3.kill(1)
    kafka3.pause(3)
    kafka3.heal()
    partition = kafka3.metadata(topic).topics[topic].partitions[0]
    assert sorted(partition.isrs) == [1, 2, 3]


@pytest.mark.whole("a cluster of its own")
@pytest.mark.kafka
def test_nothing_is_left_after_stop() -> None:
    cluster = KafkaCluster(1)
    process, folder = psutil.Process(cluster.pid(1)), cluster.log_dir(1).parent
    assert folder.is_dir()
    cluster.stop()
    cluster.stop()
    assert not process.is_running()
    assert not folder.exists()


@pytest.mark.whole("a cluster of its own")
@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)broker\(s\) \[1\] ended while starting.*no\.such\.Reporter"):
        KafkaCluster(1, {"metric.reporters": "no.such.Reporter"})


@pytest.mark.whole("a cluster of its own; the test after it does it with embedded brokers")
@pytest.mark.kafka
def test_nothing_is_left_after_the_starter_was_killed() -> None:
    program = (
        "from tests.kafka.cluster import KafkaCluster\n"
        "cluster = KafkaCluster(1)\n"
        "print(cluster.pid(1), cluster.log_dir(1).parent, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, _, folder = starter.stdout.readline().strip().partition(" ")
        broker = psutil.Process(int(pid))
        broker.suspend()  # or it would end by itself when its data are gone
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not broker.is_running() or broker.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: not Path(folder).exists())


@pytest.mark.embedded
def test_no_files_of_embedded_brokers_are_left_after_their_process_was_killed() -> None:
    program = "from tests.kafka.embedded import EmbeddedKafka\nprint(EmbeddedKafka(1).log_dir(1), flush=True)\ninput()\n"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        said = starter.stdout.readline().strip()
        assert said
        folder = Path(said)
        assert folder.is_dir()
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not folder.exists())


@pytest.mark.whole("clusters of its own")
def test_a_cluster_whose_port_was_taken_meanwhile_starts_on_other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[list[int]] = []

    def choose(count: int) -> list[int]:
        chosen.append(free_ports(count))
        if len(chosen) == 1:
            thief.bind(("127.0.0.1", chosen[0][0]))
            thief.listen()
        return chosen[-1]

    monkeypatch.setattr(cluster, "free_ports", choose)
    with socket.socket() as thief, KafkaCluster() as started:
        assert len(chosen) == 2
        assert started.address(1) == f"127.0.0.1:{chosen[1][0]}"
        assert started.create_topic("t") == "t"


@pytest.mark.parametrize("ends", [False, True], ids=["runs", "has ended"])
def test_no_other_process_chooses_a_port_before_the_one_that_chose_it_ends(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from tests.kafka.ports import free_ports\nprint(free_ports(1)[0], flush=True)\ninput()\n"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        if ends:
            other.communicate("\n", timeout=30)
        monkeypatch.setattr(ports, "LOWEST", port)
        monkeypatch.setattr(ports, "HIGHEST", port + 1)
        if ends:
            assert free_ports(1) == [port]
        else:
            with pytest.raises(OSError, match="fewer than 1 free ports"):
                free_ports(1)


def test_free_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(LOWEST <= port < HIGHEST for port in ports)
