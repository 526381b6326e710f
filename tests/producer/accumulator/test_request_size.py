"""How large batches may be so that requests keep to max.request.size, and hold as many batches as they can."""

from __future__ import annotations

import pytest

from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.accumulator.request_size import (
    QUICK_MS,
    RequestLimits,
    batch_limit,
    batch_overhead,
    request_limit,
    request_overhead,
)
from spark_kafka_sink.protocol.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.messages import encode_request
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from tests.every import every

FRAME_PREFIX = 4


def limit(**settings: object) -> int:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return batch_limit(producer_config({"bootstrap.servers": "a:1", **options}))


MIB = 1 << 20


def requests(latency_ms: int | None = 1, **settings: object) -> int:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return request_limit(producer_config({"bootstrap.servers": "a:1", **options}), latency_ms)


def test_a_broker_that_answers_quickly_gets_larger_requests() -> None:
    assert [requests(latency) for latency in (None, 0, QUICK_MS, QUICK_MS + 1)] == [MIB, 4 * MIB, 4 * MIB, MIB]


def test_whoever_limits_requests_by_javas_option_gets_none_larger() -> None:
    assert requests(max_request_size=1_000_000) == 1_000_000
    assert requests(max_request_size=8 * MIB) == 8 * MIB


@pytest.mark.parametrize("latency_ms", [None, 1])
def test_the_limit_of_requests_may_be_less_than_that_of_records(latency_ms: int | None) -> None:
    assert requests(latency_ms, produce_request_max_bytes=1_046_528) == 1_046_528
    assert limit(produce_request_max_bytes=300_000, batch_size=500_000) < 300_000


def test_requests_take_an_eighth_of_the_memory_unless_records_may_be_larger() -> None:
    assert requests(buffer_memory=16 * MIB) == 2 * MIB
    assert requests(buffer_memory=4 * MIB) == MIB


def limits() -> RequestLimits:
    return RequestLimits(producer_config({"bootstrap.servers": "a:1"}))


def test_a_quick_answer_to_a_small_request_does_not_allow_large_ones() -> None:
    of = limits()
    of.answered(1, 1000, 5)
    assert of.of(1) == MIB
    of.answered(1, MIB // 4, QUICK_MS // 4)
    of.answered(1, 1000, 5)
    assert [of.of(1), of.of(2)] == [4 * MIB, MIB]
    of.answered(1, 1000, QUICK_MS + 1)
    assert of.of(1) == MIB


def test_a_broker_at_which_the_first_large_requests_are_lost_gets_no_more() -> None:
    of = limits()
    for _ in range(2):
        of.answered(1, MIB - 1000, 5)
        of.lost(1, 4 * MIB - 1000)
        assert of.of(1) == MIB
    of.answered(1, MIB - 1000, 5)
    assert of.of(1) == MIB


def test_a_broker_that_has_answered_large_requests_gets_them_again_after_a_lost_connection() -> None:
    of = limits()
    of.answered(1, 4 * MIB - 300_000, 5)
    of.lost(1, 4 * MIB - 1000)
    assert of.of(1) == MIB
    of.answered(1, MIB - 1000, 5)
    assert of.of(1) == 4 * MIB


@every("version", [3, 8, 9, 12])
@every("transactional_id", [None, "id" * 200])
@every("topic", ["t", "t" * 249])
@every("batches", [1, 3])
def test_the_overhead_is_never_less_than_what_goes_over_the_wire(
    version: int, transactional_id: str | None, topic: str, batches: int
) -> None:
    records = bytes(HEADER_SIZE + 20_000)
    data = [PartitionProduceData(index=partition, records=[records]) for partition in range(batches)]
    request = ProduceRequest(transactional_id, -1, 30_000, [TopicProduceData(name=topic, partition_data=data)])
    size = FRAME_PREFIX + sum(map(len, encode_request(PRODUCE, version, 1, "clïent", request)))
    bound = request_overhead("clïent", transactional_id) + batches * (20_000 + batch_overhead(topic))
    assert size <= bound <= size + batches * 2 * (249 + 40)


def test_by_default_two_batches_fit_into_a_request() -> None:
    room = (1 << 20) - request_overhead("spark-kafka-sink", None)
    assert limit() > 0.99 * (512 << 10)
    assert 2 * (limit() + batch_overhead("t" * 249)) <= room


def test_small_batches_are_as_large_as_they_are_said_to_be() -> None:
    assert limit(batch_size=16_384) == 16_384
    assert limit(batch_size=0) == 0
    assert limit(batch_size=1) == 1


def test_a_batch_is_no_larger_than_a_request_has_room_for() -> None:
    most = limit(batch_size=2_000_000)
    assert most < 1 << 20
    assert limit(batch_size=(1 << 20) - 1) == most
    assert limit(batch_size=2_000_000, max_request_size=10) == 0
