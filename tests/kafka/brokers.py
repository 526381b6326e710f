"""Brokers of our own, real or embedded, that a test may kill, pause and bring back: one face for both."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from tests.kafka.kafka import Kafka


class Brokers(Kafka):
    """Node ids count from 1. Not thread-safe: the thread that made it kills, pauses and stops."""

    @property
    @abstractmethod
    def broker_ids(self) -> list[int]: ...

    @abstractmethod
    def address(self, broker_id: int) -> str:
        """host:port where the broker itself listens for clients, whatever it advertises."""

    @abstractmethod
    def log_dir(self, broker_id: int) -> Path:
        """Holds one folder `<topic>-<partition>` for each replica the broker has."""

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads the partition now; -1 when none does."""
        return self.metadata(topic).topics[topic].partitions[partition].leader

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """Its connections break and what it led goes to others. Does nothing to a broker that is not running."""

    @abstractmethod
    def restart(self, broker_id: int) -> None:
        """Starts a killed broker (a running one is killed first) on its old data and address; returns when it serves again."""

    @abstractmethod
    def pause(self, broker_id: int) -> None:
        """The broker keeps its connections and answers nothing."""

    @abstractmethod
    def resume(self, broker_id: int) -> None: ...

    @abstractmethod
    def heal(self) -> None:
        """Resumes and restarts what a test stopped; returns when every replica of every topic is in sync again."""
