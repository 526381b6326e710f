"""Frames that do a broker ill: valid requests of every API with something done to them, and noise. Without their sizes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from spark_kafka_sink.protocol.apis.groups import HeartbeatRequest, JoinGroupRequest, JoinGroupRequestProtocol
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.apis.partition_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest, PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import encode_request
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.protocol.golden_messages import golden_messages

TOPIC: Final = "fuzzed"
"""A topic that is there: what is asked of it gets deeper into the broker than what is asked of one that is not."""

HOSTILE: Final = [
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -(2**31)),
    struct.pack(">i", -2),
    struct.pack(">i", 100_000_000),
    struct.pack(">h", 2**15 - 1),
    struct.pack(">h", -(2**15)),
    struct.pack(">h", -1),
    struct.pack(">q", -(2**63)),
    struct.pack(">q", 2**63 - 1),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x10",
    b"\xff\x7f",
    b"\x80",
    b"\x01",
    b"\0",
]
"""Lengths, counts and numbers in every notation: too large, negative, null; varints that do not end or do not fit 32 bits."""

_SMALL: Final = bytes((0, 1, 2, 3, 5, 0x7F, 0x80, 0xFF))


class Mutation(NamedTuple):
    """What is done to which request. `where`: a part of its length in 256ths."""

    template: int
    kind: int
    where: int
    what: int


_PACKED: Final = struct.Struct(">HBBH")
MUTATION_SIZE: Final = _PACKED.size


def mutations(noise: bytes) -> Iterator[Mutation]:
    """One of every `MUTATION_SIZE` bytes: a tenth of the time that hypothesis takes to draw their parts one by one."""
    return (Mutation(*fields) for fields in _PACKED.iter_unpack(noise))


def templates(keys: Collection[int]) -> list[bytes]:
    """Requests of these APIs: such that Java wrote, in every version, empty and with something in every field, and such that ask
    something of `TOPIC`, a group and a transactional id."""
    written = [golden.data for golden in golden_messages() if golden.kind == "request" and golden.api.key in keys]
    meant = [_encoded(key, version, body) for key, version, body in _meant() if key in keys]
    # In equal parts.
    return written + meant * (len(written) // max(1, len(meant)) or 1)


def _encoded(key: ApiKey, version: int, body: Message) -> bytes:
    return b"".join(encode_request(ALL_APIS[key], version, 77, "fuzzer", body))


def _meant() -> list[tuple[ApiKey, int, Message]]:
    batch = small_batch([NewRecord(b"k", b"v", 1_700_000_000_000)])
    in_txn = small_batch([NewRecord(b"k", b"v", 1)], producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
    return [
        (ApiKey.PRODUCE, 9, _produce(batch)),
        (ApiKey.PRODUCE, 12, _produce(in_txn, "txn")),
        (ApiKey.FETCH, 12, FetchRequest(max_wait_ms=10, topics=(FetchTopic(TOPIC, partitions=(_from_the_start(),)),))),
        (ApiKey.LIST_OFFSETS, 10, ListOffsetsRequest(-1, topics=(ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0),)),))),
        (ApiKey.METADATA, 12, MetadataRequest((MetadataRequestTopic(name=TOPIC),), allow_auto_topic_creation=False)),
        (ApiKey.JOIN_GROUP, 9, JoinGroupRequest("group", 10_000, 10_000, "", None, "consumer", (_protocol(),))),
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest("group", 1, "member")),
        (ApiKey.OFFSET_COMMIT, 9, OffsetCommitRequest("group", topics=(_commit(),))),
        (ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=(OffsetFetchRequestGroup("group", topics=(_offsets(),)),))),
        (ApiKey.INIT_PRODUCER_ID, 5, InitProducerIdRequest("txn", 60_000)),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, _add_partitions()),
        (ApiKey.ADD_OFFSETS_TO_TXN, 4, AddOffsetsToTxnRequest("txn", 0, 0, "group")),
        (ApiKey.TXN_OFFSET_COMMIT, 5, TxnOffsetCommitRequest("txn", "group", 0, 0, topics=(_txn_commit(),))),
        (ApiKey.END_TXN, 5, EndTxnRequest("txn", 0, 0, True)),
    ]  # fmt: skip


def _produce(batch: bytes, transactional_id: str | None = None) -> ProduceRequest:
    topic = TopicProduceData(TOPIC, partition_data=(PartitionProduceData(0, (batch,)),))
    return ProduceRequest(transactional_id, topic_data=(topic,))


def _from_the_start() -> FetchPartition:
    return FetchPartition(0, partition_max_bytes=1_000)


def _protocol() -> JoinGroupRequestProtocol:
    return JoinGroupRequestProtocol("range", b"\0\0\0\0\0\1\0\6fuzzed\0\0\0\0")


def _commit() -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(TOPIC, (OffsetCommitRequestPartition(0, 5),))


def _offsets() -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(TOPIC, (0,))


def _add_partitions() -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txn", v3_and_below_topics=(AddPartitionsToTxnTopic(TOPIC, (0,)),)
    )


def _txn_commit() -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(TOPIC, (TxnOffsetCommitRequestPartition(0, 5),))


def mutated(requests: list[bytes], mutation: Mutation) -> bytes:
    request = requests[mutation.template % len(requests)]
    at = mutation.where * len(request) // 256
    return _KINDS[mutation.kind % len(_KINDS)](request, at, mutation.what)


def _whole(request: bytes, _at: int, _what: int) -> bytes:
    return request


def _truncated(request: bytes, at: int, _what: int) -> bytes:
    return request[: at + 1]


def _with_hostile_number(request: bytes, at: int, what: int) -> bytes:
    hostile = HOSTILE[what % len(HOSTILE)]
    return request[:at] + hostile + request[at + len(hostile) :]


def _with_hostile_number_for_a_byte(request: bytes, at: int, what: int) -> bytes:
    return request[:at] + HOSTILE[what % len(HOSTILE)] + request[at + 1 :]


def _with_another_byte(request: bytes, at: int, what: int) -> bytes:
    return request[:at] + bytes([what & 0xFF]) + request[at + 1 :]


def _with_a_small_byte(request: bytes, at: int, what: int) -> bytes:
    return request[:at] + _SMALL[what % 8 : what % 8 + 1] + request[at + 1 :]


def _with_a_bit_flipped(request: bytes, at: int, what: int) -> bytes:
    return request[:at] + bytes([request[at] ^ (1 << what % 8)]) + request[at + 1 :]


def _of_another_version(request: bytes, _at: int, what: int) -> bytes:
    return request[:2] + struct.pack(">h", what % 24 - 2) + request[4:]


def _noise(request: bytes, at: int, what: int) -> bytes:
    # Of the bytes that lengths, counts and tags of short messages are made of, behind a header's beginning that is one.
    return request[:8] + bytes(_SMALL[(what >> (at + step) % 13) % 8] for step in range(1 + what % 40))


_KINDS: Final[list[Callable[[bytes, int, int], bytes]]] = [
    _whole,
    _truncated,
    _with_hostile_number,
    _with_hostile_number_for_a_byte,
    _with_another_byte,
    _with_a_small_byte,
    _with_a_bit_flipped,
    _of_another_version,
    _noise,
]
