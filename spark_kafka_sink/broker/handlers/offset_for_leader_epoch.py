"""OffsetForLeaderEpoch: where an epoch ended, so that a consumer sees whether its position was cut off (KIP-320)."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.replica_manager import LedPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.partition_offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle_offset_for_leader_epoch(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, OffsetForLeaderEpochRequest)
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(topic.topic, tuple(_end(services, topic.topic, asked) for asked in topic.partitions))
            for topic in body.topics
        )
    )


def _end(services: BrokerServices, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        led = services.replica_manager.led(topic, asked.partition, asked.current_leader_epoch)
        end = _epoch_and_offset(led, asked.leader_epoch)
    except ApiException as error:
        return EpochEndOffset(error.code, asked.partition)
    return EpochEndOffset(ErrorCode.NONE, asked.partition, *end)


def _epoch_and_offset(led: LedPartition, epoch: int) -> tuple[int, int]:
    log, latest, current = led.log, led.log.latest_epoch, led.state.leader_epoch
    if latest < epoch <= current and epoch >= 0:
        # Kafka's log knows of an epoch when its leader takes over, ours when it first writes.
        known = epoch if epoch == current or latest < 0 else latest
        return known, log.log_end_offset
    found = log.end_offset_for_epoch(epoch)
    return (-1, -1) if found is None else (found.epoch, found.start_offset)
