"""The records of a batch that lies in a segment."""

from __future__ import annotations

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.control_record import EndTransactionMarker, parse_marker
from spark_kafka_sink.broker.log.segment_records import SegmentRecords
from spark_kafka_sink.records.decoder import decode_batches
from spark_kafka_sink.records.record_reader import Record


def records_at(records: SegmentRecords, position: int, header: BatchHeader) -> list[Record]:
    """Read one by one: for what needs few batches."""
    data = b"".join(records.read(position, header.size))
    return [record for batch in decode_batches(data) for record in batch.records()]


def marker_at(records: SegmentRecords, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Of a control batch; None where compaction has left it empty, or it marks something else."""
    for record in records_at(records, position, header)[:1]:
        return parse_marker(header.producer_id, header.producer_epoch, record.key, record.value)
    return None
