"""Which Kafka is used when, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.find import find_kafka
from tests.kafka.kafka import Kafka


def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Leaves one program on the PATH, a docker that notes its arguments and does what `script` says; returns the notes."""
    calls = tmp_path / "calls"
    (tmp_path / "docker").write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{script}\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return calls


@pytest.fixture(autouse=True)
def _nothing_named_and_nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.kafka
def test_the_named_kafka_is_used_and_left_running(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    with find_kafka() as found:
        assert not isinstance(found, KafkaCluster)
        assert found.metadata().brokers
    assert kafka.metadata().brokers


def test_without_any_kafka_the_error_lists_all_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match=r"(?s)KAFKA_BOOTSTRAP_SERVERS is not set.*mvn.*docker is not on the PATH"):
        find_kafka()


def test_without_maven_the_compose_file_is_started_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = docker(tmp_path, monkeypatch, "exit 0")
    with find_kafka() as found:
        assert found.bootstrap_servers == "127.0.0.1:9092"
    verbs = [line.split("spark-kafka-sink-tests ")[1] for line in calls.read_text().splitlines()]
    assert verbs == ["version", "up --detach --wait", "down --volumes"]


def test_a_compose_file_that_does_not_come_up_is_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = docker(tmp_path, monkeypatch, 'case "$*" in *up*) echo port is taken; exit 1;; esac')
    with pytest.raises(RuntimeError, match="up --detach --wait` failed: port is taken") as caught:
        find_kafka()
    assert isinstance(caught.value.__cause__, Exception)
    assert calls.read_text().splitlines()[-1].endswith("down --volumes")


def test_an_engine_without_compose_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch, "echo unknown command; exit 1")
    with pytest.raises(RuntimeError, match="`docker compose version` failed: unknown command"):
        find_kafka()
