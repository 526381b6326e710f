"""One interface for real and embedded brokers that a test may kill, pause and restart."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from tests.kafka.kafka import Kafka


class Brokers(Kafka):
    """Brokers of a test. Node ids start at 1. Not thread-safe: only the thread that created it kills, pauses and stops."""

    @property
    @abstractmethod
    def broker_ids(self) -> list[int]: ...

    @abstractmethod
    def address(self, broker_id: int) -> str:
        """Returns the host:port where the broker listens for clients, whatever it advertises."""

    @abstractmethod
    def log_dir(self, broker_id: int) -> Path:
        """Returns the folder with one subfolder `<topic>-<partition>` per replica of the broker."""

    def leader(self, topic: str, partition: int = 0) -> int:
        """Returns the current leader of the partition, or -1 if there is none."""
        found: dict[int, int] = {}

        def known() -> bool:
            of_topic = self.metadata(topic).topics[topic].partitions
            found.update({number: each.leader for number, each in of_topic.items()})
            return partition in found

        # The broker that answers may know a new topic later than the one that said that it is complete.
        self.wait_for(known, f"partition {partition} of {topic}", 30.0)
        return found[partition]

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """Kills a broker: its connections break, and others lead its partitions. Does nothing if the broker is not running."""

    @abstractmethod
    def restart(self, broker_id: int) -> None:
        """Starts a killed broker on its old data and address, and returns when it serves again. A running one is killed first."""

    @abstractmethod
    def pause(self, broker_id: int) -> None:
        """Pauses a broker: it keeps its connections and answers nothing."""

    @abstractmethod
    def resume(self, broker_id: int) -> None: ...

    @abstractmethod
    def heal(self) -> None:
        """Resumes and restarts stopped brokers, and returns when every replica of every topic is in sync."""
