"""Embedded brokers that claim to speak what an older Kafka speaks: their answers to ApiVersions are cut down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.transaction_fixtures import VERSION_1_LEVEL

# The last version of each API of transactions, from the validVersions of Kafka's *Request.json at its tag.
KAFKA_3_5: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.LIST_TRANSACTIONS: 0,
}
KAFKA_3_7: Final[Mapping[ApiKey, int]] = {**KAFKA_3_5, ApiKey.PRODUCE: 10, ApiKey.ADD_PARTITIONS_TO_TXN: 4}
KAFKA_3_8: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FIND_COORDINATOR: 5,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.LIST_TRANSACTIONS: 1,
}


@contextmanager
def older_kafka(last: Mapping[ApiKey, int], *, brokers: int = 1, only: int | None = None) -> Iterator[EmbeddedKafka]:
    """Yields brokers of transaction version 1 that speak no API beyond its `last` version.

    Args:
        last: as KAFKA_3_7.
        brokers: how many there are.
        only: the one broker that is older, as in a rolling upgrade; None for all of them.
    """

    def cut_down(_: ApiVersionsRequest, answer: ApiVersionsResponse) -> ApiVersionsResponse:
        keys = [
            replace(each, max_version=min(each.max_version, last.get(ApiKey(each.api_key), each.max_version)))
            for each in answer.api_keys
        ]
        return replace(answer, api_keys=tuple(keys))

    with EmbeddedKafka(brokers, in_memory=True, transaction_version=VERSION_1_LEVEL) as made, ExitStack() as faults:
        faults.enter_context(made.broker.faults.alter(ApiKey.API_VERSIONS, cut_down, times=None, broker=only))
        yield made
