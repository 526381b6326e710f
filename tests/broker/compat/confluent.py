"""confluent-kafka's clients, as the tests here want them: quiet, quick to reconnect, and whole answers or an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

TIMEOUT_S = 30.0
_ALL = {"log_level": 0, "reconnect.backoff.max.ms": 200}


def producer(servers: str, **settings: Any) -> Producer:
    """Settings with `_` for `.`."""
    return Producer({"bootstrap.servers": servers, "linger.ms": 0, **_ALL, **_dotted(settings)})


def consumer(servers: str, **settings: Any) -> Consumer:
    """Of no group that counts, unless `group_id` says so: nothing is committed by itself."""
    defaults = {"group.id": "nobody", "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    return Consumer({"bootstrap.servers": servers, **defaults, **_ALL, **_dotted(settings)})


def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **_ALL})


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


class Deliveries:
    """`Producer.produce(..., on_delivery=deliveries)`: what became of each record, in the order in which it was told."""

    def __init__(self) -> None:
        self.delivered: list[tuple[int | None, int | None]] = []
        """Partition and offset, which nobody knows with acks=0."""
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.delivered.append((message.partition(), message.offset()))


def write(servers: str, topic: str, *values: str | bytes, **settings: Any) -> Deliveries:
    """In turn to all partitions that the topic has; returns when each has been delivered, or has not."""
    writer = producer(servers, **settings)
    partitions = len(writer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    told = Deliveries()
    for index, value in enumerate(values):
        writer.produce(topic, value, partition=index % partitions, on_delivery=told)
    assert writer.flush(TIMEOUT_S) == 0
    return told


def polled(reader: Consumer, count: int) -> list[Message]:
    """The next `count` messages. AssertionError for an error, and where they are not there in time."""
    found: list[Message] = []
    while len(found) < count:
        for message in reader.consume(count - len(found), timeout=0.2):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def wait_for_error(client: AdminClient, told: list[KafkaError], code: int) -> None:
    """Waits until a client whose `error_cb` appends to `told` has told of an error with this code."""
    while code not in [error.code() for error in told]:
        client.poll(0.05)
