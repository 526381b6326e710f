"""Whatever the columns, each row's record holds what the row held: read back by our decoder, by kafka-python, by eye."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import RecordTooLargeError, SchemaError, UsageError
from spark_kafka_sink.records import concat
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encoder import EncodedRecords, encode_records, size_upper_bounds
from spark_kafka_sink.records.record_reader import Record, read_record
from tests.examples import examples
from tests.records.making import batch_of
from tests.records.tables import Table, column, tables

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

YEAR_2100_MS = 4_102_444_800_000
epoch_ms = st.integers(0, YEAR_2100_MS)
many_examples = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def encode(table: Table) -> EncodedRecords:
    return encode_records(table.columns, table.order, table.offset_deltas, table.timestamp_deltas)


def read(encoded: EncodedRecords) -> list[Record]:
    """Each record by itself, so that the offsets are checked too."""
    records = []
    for start, end in zip(encoded.offsets[:-1].tolist(), encoded.offsets[1:].tolist(), strict=True):
        record, read_to = read_record(bytes(encoded.data[start:end]), 0, 0, 0, None)
        assert read_to == end - start
        records.append(record)
    return records


@many_examples
@given(tables())
def test_every_record_reads_back(table: Table) -> None:
    encoded = encode(table)
    assert read(encoded) == table.records
    assert encoded.offsets[-1] == len(encoded.data)
    assert (encoded.data.format, encoded.data.ndim, encoded.data.contiguous) == ("B", 1, True)


@many_examples
@given(tables(epoch_ms, least_rows=1, gaps=False))
def test_the_bytes_are_those_of_kafka_pythons_builder_and_its_reader_reads_them(table: Table) -> None:
    timestamps = np.array([record.timestamp for record in table.records])
    encoded = encode_records(table.columns, table.order, table.offset_deltas, timestamps - timestamps[0])
    batch = batch_of(encoded, timestamps)
    built = kafka_python_builds(table.records)
    assert (batch[:12], batch[16:]) == (built[:12], built[16:])  # between: the leader epoch, the broker's to set; it writes 0
    reader = DefaultRecordBatch(batch)
    assert reader.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader] == table.records


def kafka_python_builds(records: list[Record]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=2**31
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@many_examples
@given(tables())
def test_no_record_is_larger_than_its_upper_bound(table: Table) -> None:
    bounds = size_upper_bounds(table.columns)
    sizes = np.diff(encode(table).offsets)
    assert (sizes <= (bounds if table.order is None else bounds[table.order])).all()


@given(tables())
@settings(max_examples=examples(60), deadline=None)
def test_data_past_the_limits_of_32_bits_is_cut_and_put_together_again(table: Table) -> None:
    # The real limit needs 2 GiB of data: what happens past it happens here past 9,000 bytes, the longest single value.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concat, "INT32_MAX", 9000)
        assert read(encode(table)) == table.records


LARGE = 1_200_000


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_values_over_a_megabyte_and_small_ones_share_a_column(arrow_type: pa.DataType) -> None:
    values = [b"a" * LARGE, b"", None, b"b", b"c" * (LARGE + 1), b"d" * 12]
    columns = RecordColumns(len(values), key=column(values[::-1], arrow_type, 1), value=column(values, arrow_type, 3))
    encoded = encode_records(columns, np.array([4, 0, 2, 5, 1, 3]), np.arange(6, dtype=np.int32), None)
    assert [(record.key, record.value) for record in read(encoded)] == [(values[5 - i], values[i]) for i in (4, 0, 2, 5, 1, 3)]


def test_offset_and_timestamp_deltas_over_thousands_of_rows_keep_their_order() -> None:
    rows = 20_000
    order = np.random.default_rng(7).permutation(rows)
    deltas = np.arange(rows, dtype=np.int64) * 977 - 5_000_000
    columns = RecordColumns(rows, value=pa.array([b"%d" % i for i in range(rows)]))
    encoded = encode_records(columns, order, np.arange(rows, dtype=np.int32), deltas)
    records = read(encoded)
    assert [int(record.value or b"") for record in records] == order.tolist()
    assert [(record.offset, record.timestamp) for record in records] == list(enumerate(deltas.tolist()))


def test_no_rows_give_no_bytes() -> None:
    for columns in (RecordColumns(0), RecordColumns(0, value=pa.array([], pa.binary()), key=pa.array([], pa.large_string()))):
        encoded = encode_records(columns, None, np.zeros(0, np.int32), None)
        assert (len(encoded.data), encoded.offsets.tolist()) == (0, [0])


def test_threads_encode_at_the_same_time_without_a_trace_of_each_other() -> None:
    def table(seed: int) -> RecordColumns:
        lengths = np.random.default_rng(seed).integers(0, 40, 3000).tolist()
        return RecordColumns(3000, key=pa.array([b"k%d" % seed] * 3000), value=pa.array([b"%d" % seed * n for n in lengths]))

    offsets = np.arange(3000, dtype=np.int32)
    expected = [bytes(encode_records(table(seed), None, offsets, None).data) for seed in range(4)]
    results: list[list[bytes]] = [[] for _ in range(4)]

    def work(seed: int) -> None:
        columns = table(seed)
        results[seed] = [bytes(encode_records(columns, None, offsets, None).data) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[data] * 20 for data in expected]


def test_the_columns_may_go_once_they_are_encoded() -> None:
    values = [b"%09d" % i * 3 for i in range(1000)]
    column_of_values = pa.array(values)
    encoded = encode_records(RecordColumns(1000, value=column_of_values), None, np.arange(1000, dtype=np.int32), None)
    del column_of_values
    other: list[Any] = [pa.array([b"#" * 30] * 1000) for _ in range(10)]
    assert [record.value for record in read(encoded)] == values
    assert len(other) == 10


def test_a_column_without_bytes_is_refused_by_name_of_its_type() -> None:
    with pytest.raises(SchemaError, match=r"int64.*cast it to binary or string"):
        encode_records(RecordColumns(2, value=pa.array([1, 2])), None, np.arange(2, dtype=np.int32), None)


def test_columns_and_deltas_of_other_lengths_are_refused() -> None:
    columns = RecordColumns(2, value=pa.array([b"a", b"b"]))
    with pytest.raises(UsageError, match="offset_deltas has 1 number for 2 records"):
        encode_records(columns, None, np.zeros(1, np.int32), None)
    with pytest.raises(UsageError, match="timestamp_deltas has 3 numbers for 1 record"):
        encode_records(columns, np.array([1]), np.zeros(1, np.int32), np.zeros(3, np.int64))
    with pytest.raises(UsageError, match="value has 2 rows, but num_records is 3"):
        encode_records(RecordColumns(3, value=columns.value), None, np.arange(3, dtype=np.int32), None)


def test_a_record_over_what_its_length_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_kafka_sink.records.encoder.INT32_MAX", 100)
    columns = RecordColumns(2, value=pa.array([b"a" * 50, b"b" * 95]))
    with pytest.raises(RecordTooLargeError, match="a record of 102 bytes"):
        encode_records(columns, None, np.arange(2, dtype=np.int32), None)
    monkeypatch.setattr(concat, "INT32_MAX", 90)
    with pytest.raises(RecordTooLargeError, match="a value of 95 bytes"):
        encode_records(columns, None, np.arange(2, dtype=np.int32), None)
