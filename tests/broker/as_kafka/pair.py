"""Kafka and the embedded broker, asked the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.topics import CreatableTopic, CreateTopicsRequest
from spark_kafka_sink.protocol.apis.transactions import DescribeProducersRequest, TopicRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.broker.network.client import Client
from tests.waiting import until

TOPIC, BROKER = 2, 4
_numbers = itertools.count()


def eventually(holds: Callable[[], bool]) -> None:
    """What Kafka's broker learns of a moment after its controller has answered; until then the two differ."""

    def difference() -> str:
        try:
            return "" if holds() else "it is not so"
        except AssertionError as error:
            return str(error) or "they differ"  # assertions of this file have no text

    until(difference, lambda found: not found, "what both say")


class Pair:
    """Both brokers, each with a topic `t` of two partitions that is this test's own and without one that is `missing`."""

    def __init__(self, kafka: Client, embedded: Client) -> None:
        self._clients = {"kafka": kafka, "embedded": embedded}
        self.t = f"admin.t{next(_numbers)}"
        self.missing = f"admin.missing{next(_numbers)}"
        self.create(CreatableTopic(self.t, 2, 1))

    def create(self, topic: CreatableTopic) -> None:
        for client in self._clients.values():
            answer: Any = client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([topic]))
            assert answer.topics[0].error_code == ErrorCode.NONE
        # Kafka answers when its controller has it; that its broker leads shows in what it knows of producers.
        led = DescribeProducersRequest([TopicRequest(topic.name, range(topic.num_partitions))])

        def leads(client: Client) -> bool:
            answer: Any = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, led)
            return all(partition.error_code == ErrorCode.NONE for partition in answer.topics[0].partitions)

        eventually(lambda: all(map(leads, self._clients.values())))

    def coordinate_groups(self) -> None:
        """`__consumer_offsets` is there on both: it is made for the first who looks for a coordinator, in whatever test."""

        def found(client: Client) -> bool:
            answer: Any = client.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest("group"))
            return bool(answer.error_code == ErrorCode.NONE)

        eventually(lambda: all(map(found, self._clients.values())))

    def ask(self, key: ApiKey, version: int, body: Message, seen: Callable[[Any], Any] = str) -> Any:
        """What both answer, as `seen` sees it."""
        answers = {name: seen(client.ask(key, version, body)) for name, client in self._clients.items()}
        assert answers["embedded"] == answers["kafka"]
        return answers["kafka"]
