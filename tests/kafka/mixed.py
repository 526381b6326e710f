"""Embedded brokers in the middle of a rolling upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.kafka.embedded import EmbeddedKafka


def _of_3_7(_: ApiVersionsRequest, answer: ApiVersionsResponse) -> ApiVersionsResponse:
    keys = [replace(each, max_version=3) if each.api_key == ApiKey.END_TXN else each for each in answer.api_keys]
    return replace(answer, api_keys=tuple(keys))


@contextmanager
def mixed_kafka(older: int, brokers: int = 2) -> Iterator[EmbeddedKafka]:
    """Yields brokers of Kafka 3.8, of which `older` speaks EndTxn no later than 3.7 does."""
    with (
        EmbeddedKafka(brokers, in_memory=True, like="3.8") as kafka,
        kafka.broker.faults.alter(ApiKey.API_VERSIONS, _of_3_7, broker=older, times=None),
    ):
        yield kafka
