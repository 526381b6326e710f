"""Of what a Fetch with read_committed answers, the records that are committed. Java's CompletedFetch. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.protocol.fetch import PartitionData
from spark_kafka_sink.records.decoder import FetchedBatch, decode_batches
from spark_kafka_sink.records.record_reader import Record

_ABORT = b"\x00\x00\x00\x00"  # version 0, type 0; a commit's type is 1 (ControlRecordType)


def committed_records(said: PartitionData, position: int) -> Iterator[tuple[Record | None, int]]:
    """Each record at `position` or behind it, with the offset to go on from; and for each batch's end None, with the same.

    Raises ProtocolError for what no broker should send.
    """
    aborted = sorted(said.aborted_transactions or (), key=lambda each: each.first_offset)
    producers = set[int]()  # whose records are being dropped
    for batch in _batches(said):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            producers.add(aborted.pop(0).producer_id)
        if batch.is_control:
            if _is_abort(batch):
                producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in producers):
            for record in batch.records():
                if record.offset >= position:
                    yield record, record.offset + 1
        # Compaction takes records out, also the last one, but a batch's end stays.
        yield None, max(position, batch.last_offset + 1)


def _batches(said: PartitionData) -> Iterator[FetchedBatch]:
    records = said.records or b""
    data = records if isinstance(records, (bytes, bytearray, memoryview)) else b"".join(records)
    return decode_batches(data, cut_off=True)


def _is_abort(batch: FetchedBatch) -> bool:
    records = batch.records()  # empty where compaction has removed the marker
    return bool(records) and records[0].key == _ABORT
