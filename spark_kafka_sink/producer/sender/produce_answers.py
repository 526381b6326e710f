"""What was said of each batch of a Produce request, whatever came back: an answer, a lost connection, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse

BatchAnswer = tuple[SealedBatch, PartitionProduceResponse]


def answers(response: ClientResponse, batches: Sequence[SealedBatch]) -> Iterator[BatchAnswer]:
    """Each batch of the request with its answer, in the words of one: a lost connection is a NETWORK_EXCEPTION (as in Java's
    Sender.handleProduceResponse), and so is a partition that the broker says nothing of. What was not asked is passed over."""
    if isinstance(response.body, ProduceResponse):
        yield from _answered(response.body, batches)
    elif response.error is None:  # acks=0: sent is all there is to know
        yield from _same(batches, ErrorCode.NONE, None)
    elif isinstance(response.error, UnsupportedVersionError):
        yield from _same(batches, ErrorCode.UNSUPPORTED_VERSION, response.error.message)
    else:
        yield from _same(batches, ErrorCode.NETWORK_EXCEPTION, str(response.error))


def leader_hints(body: ProduceResponse) -> Mapping[tuple[str, int], LeaderIdAndEpoch]:
    """KIP-951: an answer that refuses may name the new leader, which saves asking for metadata."""
    return {
        (topic.name, partition.index): partition.current_leader
        for topic in body.responses
        for partition in topic.partition_responses
        if partition.error_code and partition.current_leader is not None and partition.current_leader.leader_id >= 0
    }


def _answered(body: ProduceResponse, batches: Sequence[SealedBatch]) -> Iterator[BatchAnswer]:
    said: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in body.responses:
        for partition in topic.partition_responses:
            said.setdefault((topic.name, partition.index), partition)
    for batch in batches:
        answer = said.get((batch.queue.topic, batch.queue.partition))
        yield batch, answer or _answer(batch, ErrorCode.NETWORK_EXCEPTION, "the broker's answer says nothing of this partition")


def _same(batches: Sequence[SealedBatch], code: ErrorCode, message: str | None) -> Iterator[BatchAnswer]:
    return ((batch, _answer(batch, code, message)) for batch in batches)


def _answer(batch: SealedBatch, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=batch.queue.partition, error_code=code, base_offset=-1, error_message=message)
