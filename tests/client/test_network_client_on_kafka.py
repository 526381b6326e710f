"""The client against real Kafka: what the embedded broker says must be what a real one says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.records.batch_header import batch_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.encoder import encode_records
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

UP_TO_V12 = 12


class OneTopic(Metadata):
    """Metadata of one topic."""

    def __init__(self, config: ProducerConfig, topic: str) -> None:
        super().__init__(config)
        self.topic = topic

    def _topics_to_ask(self, partial: bool) -> list[str]:
        return [self.topic]


class Session:
    def __init__(self, kafka: Kafka, topic: str, acks: int = -1) -> None:
        config = producer_config({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": False, "acks": acks})
        self.metadata = OneTopic(config, topic)
        self.client = NetworkClient(config, self.metadata)

    def until(self, reached: Callable[[], object]) -> list[ClientResponse]:
        responses: list[ClientResponse] = []
        while not reached():
            responses += self.client.poll(100, monotonic_ms())
        return responses

    def leader(self) -> int:
        self.until(lambda: self.metadata.fetch().leader(self.metadata.topic, 0) is not None)
        node = self.metadata.fetch().leader(self.metadata.topic, 0)
        assert node is not None
        self.until(lambda: self.client.ready(node, monotonic_ms()))
        return node

    def ask(self, node: int, api: AnyApi, body: ProduceRequest) -> ClientResponse:
        acks = body.acks != 0
        self.client.send(node, api, body, monotonic_ms(), expects_answer=acks, tag="mine", max_version=UP_TO_V12)
        (response,) = self.until(lambda: self.client.in_flight_count() == 0)
        return response


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(1)


@pytest.fixture
def session(kafka: Kafka, topic: str) -> Iterator[Session]:
    session = Session(kafka, topic)
    yield session
    session.client.close()


def produce_request(topic: str, values: list[bytes], acks: int) -> ProduceRequest:
    columns = RecordColumns(num_records=len(values), value=pa.array(values, pa.binary()))
    deltas = pa.array(range(len(values)), pa.int32()).to_numpy()
    records = encode_records(columns, None, deltas, None).data
    now_ms = time.time_ns() // 1_000_000
    header = batch_header(
        record_count=len(values), first_timestamp=now_ms, max_timestamp=now_ms, codec=Codec.NONE, payload=[records]
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=[header, records])])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


def test_a_batch_produced_is_what_an_independent_consumer_reads(kafka: Kafka, topic: str, session: Session) -> None:
    values = [b"first", b"", b"third"]
    response = session.ask(session.leader(), PRODUCE, produce_request(topic, values, acks=-1))

    assert response.error is None
    assert isinstance(response.body, ProduceResponse)
    (partition,) = response.body.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert response.version == UP_TO_V12
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic)] == values


def test_a_request_with_acks_0_is_done_once_it_is_sent(kafka: Kafka, topic: str, session: Session) -> None:
    response = session.ask(session.leader(), PRODUCE, produce_request(topic, [b"unanswered"], acks=0))

    assert (response.tag, response.body, response.error) == ("mine", None, None)
    kafka.wait_for(lambda: len(list(read_topic(kafka.bootstrap_servers, topic))) == 1, "the record in the log", 20)


def test_requests_follow_each_other_without_waiting_for_answers_which_come_in_order(topic: str, session: Session) -> None:
    node = session.leader()
    responses: list[ClientResponse] = []
    for number in range(10):
        responses += session.until(lambda: session.client.ready(node, monotonic_ms()))
        request = produce_request(topic, [b"x" * 100_000], acks=-1)
        session.client.send(node, PRODUCE, request, monotonic_ms(), tag=number, max_version=UP_TO_V12)
    responses += session.until(lambda: session.client.in_flight_count() == 0)

    assert [response.tag for response in responses] == list(range(10))
    assert [response.error for response in responses] == [None] * 10
