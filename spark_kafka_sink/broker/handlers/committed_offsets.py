"""What OffsetCommit and TxnOffsetCommit have in common: offsets by partition, some perhaps of topics that are not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.group.offset_metadata_manager import Codes, Offsets
from spark_kafka_sink.broker.group.offsets import NO_EXPIRY, OffsetAndMetadata, TopicPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.group_offsets import OffsetCommitRequestTopic
from spark_kafka_sink.protocol.transactions import TxnOffsetCommitRequestTopic

Topics: TypeAlias = Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]


def offsets_of(topics: Topics, now_ms: int, expire_timestamp_ms: int = NO_EXPIRY) -> Offsets:
    return {
        TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms,
            expire_timestamp_ms,
        )
        for topic in topics
        for partition in topic.partitions
    }


def existing(image: MetadataImage, offsets: Offsets) -> Offsets:
    return {one: offset for one, offset in offsets.items() if image.partition(*one) is not None}


def committed(services: BrokerServices, offsets: Offsets, commit: Callable[[Offsets], Codes]) -> Codes:
    """`commit` is asked for those that exist; one code for each of all."""
    known = existing(services.cluster.image, offsets)
    codes: Mapping[TopicPartition, ErrorCode] = {}
    if known:
        try:
            codes = commit(known)
        except ApiException as error:
            codes = dict.fromkeys(known, error.code)
    return {one: codes.get(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for one in offsets}
