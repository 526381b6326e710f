"""The messages of golden/messages-4.1.0.txt: the bytes that Java wrote, and the same messages built here."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.messages import APIS
from spark_kafka_sink.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

CORRELATION_ID = 77
CLIENT_ID = "client-ü"
TOPIC_ID = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)


@dataclass(frozen=True)
class Golden:
    """One line of the file."""

    api: AnyApi
    version: int
    kind: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.api.name}-v{self.version}-{self.kind}"

    def message(self) -> Message:
        """The message that `data` stands for, with defaults where the version lacks a field."""
        return _BUILDERS[self.api.key, self.kind](self.version)


def golden_messages() -> list[Golden]:
    lines = Path(__file__).with_name("golden").joinpath("messages-4.1.0.txt").read_text().splitlines()
    return [_golden(*line.split()) for line in lines]


def _golden(name: str, version: str, kind: str, data: str) -> Golden:
    return Golden(APIS[ApiKey[name]], int(version), kind, bytes.fromhex(data))


def _produce_request(version: int) -> Message:
    partitions = (PartitionProduceData(0, (b"\1\2\3\4\5",)), PartitionProduceData(1 << 20, None))
    if version < 13:
        return ProduceRequest("tx", -1, 30_000, (TopicProduceData("topic", partition_data=partitions),))
    return ProduceRequest("tx", -1, 30_000, (TopicProduceData(topic_id=TOPIC_ID, partition_data=partitions),))


def _produce_response(version: int) -> Message:
    partition = PartitionProduceResponse(3, 6, 1 << 40, 1_700_000_000_000)
    response = ProduceResponse(throttle_time_ms=11)
    if version >= 5:
        partition.log_start_offset = 9
    if version >= 8:
        partition.record_errors = (BatchIndexAndErrorMessage(2, "bad key"), BatchIndexAndErrorMessage(4))
        partition.error_message = "not the leader"
    if version >= 10:
        partition.current_leader = LeaderIdAndEpoch(2, 8)
        response.node_endpoints = (NodeEndpoint(2, "broker-2", 9092, "r1"),)
    topic = TopicProduceResponse("topic") if version < 13 else TopicProduceResponse(topic_id=TOPIC_ID)
    topic.partition_responses = (partition,)
    response.responses = (topic,)
    return response


def _metadata_request(version: int) -> Message:
    topics = (MetadataRequestTopic(name="topic"), MetadataRequestTopic(name="other"))
    request = MetadataRequest(topics, allow_auto_topic_creation=version < 4)
    if version >= 8:
        request.include_topic_authorized_operations = True
        request.include_cluster_authorized_operations = version <= 10
    if version >= 10:
        topics[0].topic_id = TOPIC_ID
        topics[1].name = None
    return request


def _metadata_response(version: int) -> Message:
    partition = MetadataResponsePartition(5, 1, -1, replica_nodes=(1, 2, 3))
    topic = MetadataResponseTopic(0, None if version >= 12 else "topic", is_internal=True, partitions=(partition,))
    brokers = (MetadataResponseBroker(1, "broker-1", 9092), MetadataResponseBroker(2, "broker-2", 19092, "r2"))
    response = MetadataResponse(brokers=brokers, controller_id=1, topics=(topic,))
    response.cluster_id = "cluster" if version >= 2 else None
    response.throttle_time_ms = 4 if version >= 3 else 0
    partition.offline_replicas = (2,) if version >= 5 else ()
    partition.leader_epoch = 6 if version >= 7 else -1
    if version >= 8:
        topic.topic_authorized_operations = 255
    if 8 <= version <= 10:
        response.cluster_authorized_operations = 511
    if version >= 10:
        topic.topic_id = TOPIC_ID
    response.error_code = 129 if version >= 13 else 0
    return response


def _api_versions_request(version: int) -> Message:
    return ApiVersionsRequest("sink", "0.1.0") if version >= 3 else ApiVersionsRequest()


def _api_versions_response(version: int) -> Message:
    response = ApiVersionsResponse(0, (ApiVersion(0, 3, 13),), 3 if version >= 1 else 0)
    if version >= 3:
        response.supported_features = (SupportedFeatureKey("metadata.version", 7, 27),)
        response.finalized_features_epoch = 12
        response.finalized_features = (FinalizedFeatureKey("metadata.version", 27, 27),)
        response.zk_migration_ready = True
    return response


def _init_producer_id_request(version: int) -> Message:
    return InitProducerIdRequest("tx", 60_000, 1 << 40, 6) if version >= 3 else InitProducerIdRequest("tx", 60_000)


def _init_producer_id_response(version: int) -> Message:
    return InitProducerIdResponse(5, 90, 1 << 40, 7)


_BUILDERS = {
    (ApiKey.PRODUCE, "request"): _produce_request,
    (ApiKey.PRODUCE, "response"): _produce_response,
    (ApiKey.METADATA, "request"): _metadata_request,
    (ApiKey.METADATA, "response"): _metadata_response,
    (ApiKey.API_VERSIONS, "request"): _api_versions_request,
    (ApiKey.API_VERSIONS, "response"): _api_versions_response,
    (ApiKey.INIT_PRODUCER_ID, "request"): _init_producer_id_request,
    (ApiKey.INIT_PRODUCER_ID, "response"): _init_producer_id_response,
}
