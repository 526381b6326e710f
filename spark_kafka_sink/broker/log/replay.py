"""Producers as a batch that is in the log leaves them."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_types import AppendOrigin
from spark_kafka_sink.broker.log.producer_append_info import CompletedTxn, ProducerAppendInfo
from spark_kafka_sink.broker.log.producer_state_entry import NUM_BATCHES_TO_RETAIN, BatchMetadata
from spark_kafka_sink.broker.log.producer_state_manager import ProducerStateManager
from spark_kafka_sink.broker.log.stored_records import marker_at
from spark_kafka_sink.broker.log.transaction_index import AbortedTxn

# Five batches of half a megabyte from each of three producers; of the smallest batches 100,000 headers, 0.3 s.
_TAIL = 8 * 1024 * 1024


def replay_batch(
    state: ProducerStateManager, segment: LogSegment, position: int, header: BatchHeader, *, into_index: bool
) -> None:
    """Brings `state` behind this batch, unless it is there already. into_index: an abort goes into the transaction index."""
    if header.last_offset < state.map_end_offset:
        return
    if header.has_producer_id:
        appended = state.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
        completed = _appended(appended, segment, position, header)
        complete(state, appended, completed, segment if into_index else None)
    state.map_end_offset = header.next_offset


def complete(
    state: ProducerStateManager, appended: ProducerAppendInfo, completed: CompletedTxn | None, segment: LogSegment | None
) -> None:
    """The batch is in the log; the end of a transaction goes into the index of `segment`, where its marker is."""
    state.update(appended)
    if completed is None:
        return
    if completed.is_aborted and segment is not None:
        stable = state.last_stable_offset_after(completed)
        segment.txn_index.append(AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable))
    state.complete_txn(completed)


def remember_batches(state: ProducerStateManager, segments: Sequence[LogSegment]) -> None:
    """The last five batches of each producer, as far as they lie in the log's last few megabytes.

    A snapshot has the last one only, and Kafka is content with that; then a producer that had more in flight when the broker
    stopped finds those it sends again out of order.
    """
    known = {entry.producer_id: entry for entry in state.entries() if entry.batches}
    earlier: dict[int, list[BatchMetadata]] = {producer_id: [] for producer_id in known}
    for segment in segments[-2:] if known else ():
        start = segment.offset_index.position_before(segment.size - _TAIL)
        for _, header in segment.records.headers(start):
            entry = known.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch:
                continue
            if header.last_offset < entry.batches[0].first_offset:
                earlier[header.producer_id].append(_metadata(header))
    for producer_id, entry in known.items():
        missing = NUM_BATCHES_TO_RETAIN - len(entry.batches)
        entry.batches.extendleft(reversed(earlier[producer_id][-missing:] if missing else []))


def _metadata(header: BatchHeader) -> BatchMetadata:
    return BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)


def _appended(appended: ProducerAppendInfo, segment: LogSegment, position: int, header: BatchHeader) -> CompletedTxn | None:
    if not header.is_control:
        appended.append_data(header)
        return None
    marker = marker_at(segment.records, position, header)
    return None if marker is None else appended.append_marker(marker, header.base_offset, header.max_timestamp)
