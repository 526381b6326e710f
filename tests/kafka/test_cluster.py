"""A cluster of our own: it serves, survives what tests do to it, and is gone after it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka import ports
from tests.kafka.cluster import KafkaCluster
from tests.kafka.ports import HIGHEST, LOWEST, free_ports
from tests.kafka.versions import DEFAULT, POMS, patch_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


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


# Clusters of other versions than the default: they are of that version, and of the mode that was asked for


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Kafka 0\.8 has no pom"):
        KafkaCluster(version="0.8")


def test_each_pom_pins_a_patch_of_its_version() -> None:
    assert all(patch_of(version).startswith(f"{version}.") for version in POMS)
    assert DEFAULT in POMS
