"""A query, and a job, that leave something behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from tests.cli.left_over import LeftOver
from tests.kafka.fixtures import NewTopic, embedded_broker_kind
from tests.kafka.kafka import Kafka

broker_kind = embedded_broker_kind("a second for each; some stay, and tests/exactly_once commits and aborts on real Kafka")

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command sets up the log of its process, which is the one of all tests when it runs in here."""
    root, package = logging.getLogger(), logging.getLogger("spark_kafka_sink")
    before = root.level, package.level, root.handlers[:]
    yield
    root.setLevel(before[0])
    package.setLevel(before[1])
    root.handlers[:] = before[2]


@pytest.fixture
def query(kafka: Kafka, new_topic: NewTopic) -> Iterator[LeftOver]:
    made = LeftOver(kafka, new_topic(), new_topic(2, config=COMPACTED))
    yield made
    made.close()


@pytest.fixture
def query_of_each_version(transaction_kafka: Kafka, new_topic: NewTopic) -> Iterator[LeftOver]:
    """With transactions of version 1, then of version 2."""
    made = LeftOver(transaction_kafka, new_topic(on=transaction_kafka), new_topic(2, on=transaction_kafka, config=COMPACTED))
    yield made
    made.close()


@pytest.fixture
def job(kafka: Kafka, new_topic: NewTopic) -> Iterator[LeftOver]:
    made = LeftOver(kafka, new_topic(), new_topic(2, config=COMPACTED), MicroBatch.of_new_job().query_id)
    yield made
    made.close()
