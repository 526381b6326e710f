"""A few records written in plain Python are the batch that the column encoder writes, and read back as they were."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.batch_header import batch_header
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record, read_varint
from spark_kafka_sink.records.small_batches import NewRecord, decode_batches, small_batch
from spark_kafka_sink.records.varints import varint
from tests.examples import examples
from tests.records.making import encode_all

short_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), short_bytes), max_size=3).map(tuple)
new_records = st.builds(NewRecord, short_bytes, short_bytes, st.integers(0, 2**60), headers)


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_any_number_reads_back(number: int) -> None:
    data = varint(number)

    assert read_varint(data, 0, 64) == (number, len(data))


@given(records=st.lists(new_records, min_size=1, max_size=20))
@settings(max_examples=examples(100), deadline=None)
def test_it_writes_what_the_column_encoder_writes(records: list[NewRecord]) -> None:
    expected = [Record(offset, one.timestamp, one.key, one.value, one.headers) for offset, one in enumerate(records)]
    payload = bytes(encode_all(expected).data)
    header = batch_header(
        record_count=len(records),
        first_timestamp=records[0].timestamp,
        max_timestamp=max(one.timestamp for one in records),
        codec=Codec.NONE,
        payload=[payload],
    )

    batch = small_batch(records)

    assert batch == header + payload
    assert next(decode_batches(batch)).records() == expected


def test_a_producer_s_batch_carries_its_marks() -> None:
    (batch,) = decode_batches(
        small_batch(
            [NewRecord(b"k", b"v", 5)], producer_id=7, producer_epoch=2, base_sequence=9, transactional=True, control=True
        )
    )

    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 9)
    assert (batch.is_transactional, batch.is_control) == (True, True)
