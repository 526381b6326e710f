"""Producers as a batch that is in the log leaves them."""

from __future__ import annotations

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_types import AppendOrigin
from spark_kafka_sink.broker.log.producer_append_info import CompletedTxn, ProducerAppendInfo
from spark_kafka_sink.broker.log.producer_state_manager import ProducerStateManager
from spark_kafka_sink.broker.log.stored_records import marker_at
from spark_kafka_sink.broker.log.transaction_index import AbortedTxn


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


def _appended(appended: ProducerAppendInfo, segment: LogSegment, position: int, header: BatchHeader) -> CompletedTxn | None:
    if not header.is_control:
        appended.append_data(header)
        return None
    marker = marker_at(segment.records, position, header)
    return None if marker is None else appended.append_marker(marker, header.base_offset, header.max_timestamp)
