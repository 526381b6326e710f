"""Transactional producers with short back-offs, somebody else to end what they prepare, and what readers see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer import Producer
from tests.faults.producing import QUICK
from tests.kafka.witness import read_topic
from tests.waiting import until

DEADLINE_S = 30.0


class Reached(Protocol):
    """Brokers of any kind."""

    @property
    def bootstrap_servers(self) -> str: ...


def scoped(bootstrap_servers: str, **settings: object) -> Producer:
    """Its transactions have ids of their own. Settings are Kafka's option names with underscores for dots."""
    return Producer(_options(bootstrap_servers, settings), transactional=True)


def under_id(bootstrap_servers: str, transactional_id: str, *, initialized: bool = True, **settings: object) -> Producer:
    """All its transactions are under this id."""
    made = Producer(_options(bootstrap_servers, {"transactional_id": transactional_id, **settings}))
    if initialized:
        made.init_transactions()
    return made


def _options(bootstrap_servers: str, settings: dict[str, object]) -> dict[str, object]:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": bootstrap_servers, **QUICK, **options}


@contextmanager
def somebody_else(kafka: Reached) -> Iterator[TransactionClient]:
    with ClusterClient(producer_config({"bootstrap.servers": kafka.bootstrap_servers})) as client:
        yield TransactionClient(client)


def deadline() -> float:
    return time.monotonic() + DEADLINE_S


def values(kafka: Reached, topic: str, isolation_level: str = "read_committed") -> list[int]:
    """The numbers that a consumer that is not ours reads, in their order by partition and offset."""
    return [int(read.value or b"") for read in read_topic(kafka.bootstrap_servers, topic, isolation_level=isolation_level)]


def until_read(kafka: Reached, topic: str, expected: list[int]) -> None:
    """A commit is answered when it is certain; the markers that let consumers read on are written after that."""
    until(lambda: values(kafka, topic), lambda found: found == expected, f"{expected} read")


def state_of(kafka: Reached, transactional_id: str) -> str | None:
    """What the coordinator says: "Ongoing" and the like; None for an id that it does not know."""
    with somebody_else(kafka) as other:
        described = other.describe([transactional_id], deadline()).get(transactional_id)
        return None if described is None else described.state


def until_ended(kafka: Reached, transactional_id: str) -> None:
    """Markers take some ms."""
    ending = ("Ongoing", "PrepareAbort", "PrepareCommit")
    until(lambda: state_of(kafka, transactional_id), lambda state: state not in ending, "the end")
