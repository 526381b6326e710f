"""Well-formed answers to another question than the one asked: each is an error of this package, or is passed over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.topics import TOPIC, ask_for_configs, ask_to_create, topic_metadata
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.exactly_once.partition_reader import LogReader
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FETCH
from spark_kafka_sink.protocol.apis.find_coordinator import Coordinator
from spark_kafka_sink.protocol.apis.topics import CreatableTopic
from spark_kafka_sink.protocol.error_codes import ErrorCode

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("topic", partitions=1)
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[ClusterClient]:
    with ClusterClient(producer_config({"bootstrap.servers": broker.address(1)})) as client:
        yield client


def soon() -> float:
    return time.monotonic() + 20


def read_log(client: ClusterClient) -> None:
    LogReader(client, "topic", 0, lambda record: None, lambda: None).read_to_end(soon())


ASKED: dict[str, tuple[ApiKey, str, Callable[[ClusterClient], object]]] = {
    "metadata": (ApiKey.METADATA, "topics", lambda client: topic_metadata(client, "topic", soon())),
    "configs": (ApiKey.DESCRIBE_CONFIGS, "results", lambda client: ask_for_configs(client, TOPIC, "topic", soon())),
    "new topics": (ApiKey.CREATE_TOPICS, "topics", lambda client: ask_to_create(client, CreatableTopic("new", 1, 1), soon())),
    "offsets": (ApiKey.LIST_OFFSETS, "topics", read_log),
    "records": (ApiKey.FETCH, "responses", read_log),
}


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize(("key", "field", "ask"), ASKED.values(), ids=ASKED.keys())
def test_an_answer_about_nothing_or_about_two_things_is_a_protocol_error(
    broker: EmbeddedBroker, client: ClusterClient, key: ApiKey, field: str, ask: Callable[[ClusterClient], object], times: int
) -> None:
    client.brokers(soon())
    if key in (ApiKey.LIST_OFFSETS, ApiKey.FETCH):
        client.leader("topic", 0, soon())

    def other(_request: Any, answer: Any) -> Any:
        return replace(answer, **{field: tuple(getattr(answer, field)) * times})

    broker.faults.alter(key, other, times=None)
    with pytest.raises(ProtocolError, match=f"a response to {key.kafka_name} has {times} "):
        ask(client)


def test_coordinators_of_ids_that_were_not_asked_for_are_passed_over(broker: EmbeddedBroker, client: ClusterClient) -> None:
    """An error about one of them named an id that nobody had heard of."""

    def more(_request: Any, answer: Any) -> Any:
        stranger = Coordinator("stranger\x07", 1, "127.0.0.1", 1, int(ErrorCode.INVALID_REQUEST), None)
        return replace(answer, coordinators=(stranger, *answer.coordinators))

    broker.faults.alter(ApiKey.FIND_COORDINATOR, more, times=None)

    assert client.coordinators(["mine"], soon()).nodes == {"mine": 1}


def test_descriptions_of_ids_that_were_not_asked_for_are_passed_over(broker: EmbeddedBroker, client: ClusterClient) -> None:
    def more(_request: Any, answer: Any) -> Any:
        (own,) = answer.transaction_states
        stranger = replace(own, transactional_id="stranger", error_code=int(ErrorCode.INVALID_REQUEST))
        return replace(answer, transaction_states=(stranger, own))

    broker.faults.alter(ApiKey.DESCRIBE_TRANSACTIONS, more, times=None)

    assert TransactionClient(client).describe(["mine"], soon()) == {}


def test_a_response_over_the_limit_of_its_api_is_refused(broker: EmbeddedBroker, client: ClusterClient) -> None:
    """The next request has a limit of its own."""
    client.brokers(soon())
    limit = FETCH.max_response_bytes

    def large(_request: Any, answer: Any) -> Any:
        topic = answer.responses[0]
        partition = replace(topic.partitions[0], records=(bytes(limit),))
        return replace(answer, responses=(replace(topic, partitions=(partition,)),))

    broker.faults.alter(ApiKey.FETCH, large)
    with pytest.raises(ProtocolError, match=f"but the size must be 1 to {limit:,}"):
        read_log(client)
    assert list(client.brokers(soon())) == [1]
