"""An embedded broker that records each batch it receives, and helpers with which tests describe faults of Produce requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse
from spark_kafka_sink.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.apis.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from spark_kafka_sink.records.small_batches import FetchedBatch, decode_batches
from tests.broker.network.client import Client

CONFIG = BrokerConfig(auto_create_topics_enable=False)
FETCH_VERSION = 11  # topics are asked for by name


@dataclass(frozen=True, slots=True)
class Received:
    """A batch as it came to a broker, its CRC checked."""

    broker: int
    topic: str
    partition: int
    batch: FetchedBatch
    values: tuple[bytes | None, ...]

    @property
    def numbers(self) -> tuple[int, int]:
        return self.batch.producer_epoch, self.batch.base_sequence


class RecordingBroker(EmbeddedBroker):
    """Records batches in `received`, in the order in which the brokers begin to serve them.

    A Kafka broker serves the requests of a connection one at a time. While a fault holds a request, those behind it are not in
    `received` yet. The producer's metric `requests-in-flight` counts them.
    """

    def __init__(
        self, brokers: int = 1, *, advertised: Mapping[int, tuple[str, int]] | None = None, config: BrokerConfig = CONFIG
    ) -> None:
        super().__init__(brokers, config=config, advertised=advertised)
        self.received: list[Received] = []
        self._failure: BaseException | None = None
        self.faults.watch(ApiKey.PRODUCE, on_request=self._keep)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        if self._failure is not None:
            raise self._failure

    def _keep(self, broker: int, body: ProduceRequest) -> None:
        try:
            for topic, partition, batch in batches_of(body):
                values = tuple(record.value for record in batch.records())
                self.received.append(Received(broker, topic, partition, batch, values))
        except BaseException as error:
            self._failure = error

    # Topics

    def topic(self, name: str = "t", leaders: Sequence[int] = (1,), **configs: object) -> str:
        """Creates a topic with one replica per partition, on the broker in `leaders`. Replaces a topic of that name.

        configs: topic configs, with underscores for dots.
        """
        if name in self.cluster.image.topics:
            self.delete(name)
        texts = {config.replace("_", "."): str(value) for config, value in configs.items()}
        self.cluster.create_topic(name, assignments=[(index, (leader,)) for index, leader in enumerate(leaders)], configs=texts)
        return name

    def delete(self, name: str = "t") -> None:
        self.cluster.delete_topic(name)

    def leader_epoch(self, name: str = "t", partition: int = 0) -> int:
        state = self.cluster.image.partition(name, partition)
        assert state is not None
        return state.leader_epoch

    # What is there

    def stored(self, topic: str = "t", partition: int = 0) -> list[FetchedBatch]:
        """Reads the batches of a partition back, as a consumer does."""
        asked = FetchTopic(topic, partitions=(FetchPartition(partition, partition_max_bytes=2**31 - 1),))
        with Client(int(self.address(self.leader(topic, partition)).rpartition(":")[2])) as client:
            for user, password in list(self._config.sasl_users.items())[:1]:
                client.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
                client.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(f"\0{user}\0{password}".encode()))
            answer: Any = client.ask(ApiKey.FETCH, FETCH_VERSION, FetchRequest(topics=(asked,)))
        (found,) = answer.responses[0].partitions
        assert found.error_code == 0
        batches = list(decode_batches(b"".join(found.records or ())))
        assert found.high_watermark == (batches[-1].last_offset + 1 if batches else 0)
        return batches

    def values(self, topic: str = "t", partition: int = 0) -> list[int]:
        """Reads the records of a partition back. They are numbers, with or without leading zeros."""
        batches = self.stored(topic, partition)
        return [int((record.value or b"").lstrip(b"0") or b"0") for batch in batches for record in batch.records()]

    # What came

    def attempts(self, value: int) -> list[Received]:
        """Returns each arrival of the batch that has this record."""
        return [received for received in self.received if b"%d" % value in received.values]

    @property
    def too_large(self) -> list[Received]:
        """Batches that were larger than the topic's max.message.bytes."""
        return [received for received in self.received if received.batch.size > self.max_message_bytes(received.topic)]

    def max_message_bytes(self, topic: str = "t") -> int:
        known = self.cluster.image.topics.get(topic)
        return int((known.configs if known else {}).get("max.message.bytes", 1_048_588))


def batches_of(body: ProduceRequest) -> Iterator[tuple[str, int, FetchedBatch]]:
    """Yields topic, partition and batch."""
    for topic in body.topic_data:
        for data in topic.partition_data:
            for batch in decode_batches(b"".join(data.records or ())):
                yield topic.name, data.index, batch


def numbers_in(body: ProduceRequest) -> list[int]:
    """Returns the values of a Produce request's records, as numbers."""
    return [int(record.value or b"") for _, _, batch in batches_of(body) for record in batch.records()]


# For the `when` of a fault


def carries(*values: int) -> Callable[[ProduceRequest], bool]:
    """Selects Produce requests that have one of these records."""
    return lambda body: not set(values).isdisjoint(numbers_in(body))


# For faults that make or alter an answer


def says(code: int, **fields: Any) -> Callable[[ProduceRequest], ProduceResponse]:
    """Answers the same for each partition. fields: those of PartitionProduceResponse."""

    def answer(body: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [PartitionProduceResponse(each.index, code, -1, **fields) for each in topic.partition_data],
                )
                for topic in body.topic_data
            ]
        )

    return answer


def throttles(ms: int) -> Callable[[ProduceRequest, ProduceResponse], ProduceResponse]:
    return lambda body, answer: replace(answer, throttle_time_ms=ms)


def of_partitions(
    change: Callable[[PartitionProduceResponse], Iterable[PartitionProduceResponse]],
) -> Callable[[ProduceRequest, ProduceResponse], ProduceResponse]:
    """Replaces each partition's part of the answer with the parts that `change` returns: none, one or several."""

    def changed(body: ProduceRequest, answer: ProduceResponse) -> ProduceResponse:
        topics = [
            replace(topic, partition_responses=[new for each in topic.partition_responses for new in change(each)])
            for topic in answer.responses
        ]
        return replace(answer, responses=topics)

    return changed


def tells_leader(leader: int, epoch: int) -> Callable[[Any, MetadataResponse], MetadataResponse]:
    """Changes Metadata answers to name this leader for each partition of topic t."""

    def changed(body: Any, answer: MetadataResponse) -> MetadataResponse:
        topics = [
            replace(each, partitions=[replace(one, leader_id=leader, leader_epoch=epoch) for one in each.partitions])
            if each.name == "t"
            else each
            for each in answer.topics
        ]
        return replace(answer, topics=topics)

    return changed
