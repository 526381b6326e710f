"""Avro by column: what a row costs one core, beside fastavro and pyruhvro, and within an append.

Every contender encodes the same rows in this process. What counts is CPU time, because other programs may use the machine.

- This sink writes the five bytes before each value that Confluent's wire format wants.
- fastavro has `schemaless_writer` for each row. The dicts are made before.
- pyruhvro encodes whole columns in Rust. It does not write the five bytes, so there is another line with Arrow joining them.

An append with a column of structs is compared with an append of the same bytes as a binary column.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from benchmarks.avro_records import RECORDS, rows_of
from benchmarks.cells import WARM_UPS, Cell, Plan, take_turns
from benchmarks.environment import Topics
from benchmarks.instructions.paths import TurnedProducer
from benchmarks.results import AVRO_APPEND, BYTES_APPEND, FASTAVRO, PYRUHVRO, PYRUHVRO_PREFIXED, SINK, Run, Runs
from spark_kafka_sink.formats.avro.avro_fit import fit
from spark_kafka_sink.formats.avro.avro_schema import parse
from spark_kafka_sink.formats.schema_serializer import id_prefix
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.records.columns import RecordColumns

if TYPE_CHECKING:
    from spark_kafka_sink.formats.schema_format import ColumnPlan

BATCH_ROWS: Final = 10_000  # Spark's rows per Arrow batch
PREFIX: Final = id_prefix(1)
SHARES: Final[Mapping[str, float]] = {FASTAVRO: 0.05}  # of the rows, because it takes longer
APPEND_RECORD: Final = "avro-5"

Encode = Callable[[], Iterable[Any]]  # bytes, or values of Arrow


def schemas(cells: Sequence[Cell], plan: Plan, topics: Topics) -> Iterator[tuple[Cell, Runs]]:
    """Measures the cells: each in RECORDS is encoded, and the other one is appended."""
    for cell in cells:
        if cell.name in RECORDS:
            yield cell, take_turns(cell, plan, WARM_UPS, _encoding(cell, plan.rows(cell)))
        else:
            yield cell, _appended(cell, plan, topics)


def encoders(name: str, rows: int) -> Mapping[str, Encode]:
    """Returns for each contender the function that encodes `rows` rows of a record."""
    column, schema = rows_of(name, rows), RECORDS[name].schema
    plan = fit(parse(schema), column.type)
    return {
        SINK: lambda: plan.encode(column, PREFIX),
        FASTAVRO: _fastavro(column, schema),
        PYRUHVRO: _pyruhvro(column, schema),
        PYRUHVRO_PREFIXED: _prefixed(_pyruhvro(column, schema)),
    }


def _fastavro(column: pa.Array, schema: str) -> Encode:
    parsed = fastavro.parse_schema(json.loads(schema))
    records = column.to_pylist()

    def encode() -> list[bytes]:
        encoded = []
        for record in records:
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, parsed, record)
            encoded.append(stream.getvalue())
        return encoded

    return encode


def _pyruhvro(column: pa.Array, schema: str) -> Callable[[], pa.Array]:
    batch = pa.RecordBatch.from_struct_array(column)

    def encode() -> pa.Array:
        (encoded,) = pyruhvro.serialize_record_batch(batch, schema, 1)
        return encoded

    return encode


def _prefixed(encode: Callable[[], pa.Array]) -> Encode:
    before, between = pa.scalar(PREFIX, pa.binary()), pa.scalar(b"", pa.binary())
    return lambda: pc.binary_join_element_wise(before, encode(), between)


def _encoding(cell: Cell, rows: int) -> Callable[[str], Run]:
    encode = encoders(cell.name, BATCH_ROWS)

    def run(name: str) -> Run:
        batches = max(1, round(rows * SHARES.get(name, 1) / BATCH_ROWS))
        return _timed(batches, encode[name])

    return run


def _timed(batches: int, run: Callable[[], object]) -> Run:
    started, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):  # what it returns is dropped, as a producer drops it
        run()
    return Run(batches * BATCH_ROWS, time.perf_counter() - started, time.process_time() - cpu)


class Encoding(Serializer):
    """Encodes structs by a plan."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan

    def serialize(self, topic: str, value: Any, headers: object = ()) -> bytes | None:
        raise TypeError("structs are encoded by column")

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        return self._plan.encode(column, PREFIX)


def _appended(cell: Cell, plan: Plan, topics: Topics) -> Runs:
    """Measures appends alone: the rounds of the sender are run between them."""
    column = rows_of(APPEND_RECORD, BATCH_ROWS)
    fitted = fit(parse(RECORDS[APPEND_RECORD].schema), column.type)
    values = {AVRO_APPEND: column, BYTES_APPEND: fitted.encode(column, PREFIX)}
    servers = topics.kafka.bootstrap_servers
    producers = {
        AVRO_APPEND: TurnedProducer(servers, {"value.serializer": Encoding(fitted)}),
        BYTES_APPEND: TurnedProducer(servers),
    }
    batches = plan.rows(cell) // BATCH_ROWS
    try:
        with topics.fresh(cell.partitions, plan.rows(cell) * cell.record_bytes * plan.repeats) as topic:
            for turned in producers.values():
                turned.find(topic)
            return take_turns(
                cell,
                plan,
                WARM_UPS,
                lambda name: _append(producers[name], topic, RecordColumns(BATCH_ROWS, values[name]), batches),
            )
    finally:
        for turned in producers.values():
            turned.producer.close(60.0)


def _append(turned: TurnedProducer, topic: str, columns: RecordColumns, batches: int) -> Run:
    seconds = cpu = 0.0
    with turned.producer.scope() as scope:
        for _ in range(batches):
            one = _timed(1, lambda: scope.append(topic, columns))
            seconds, cpu = seconds + one.seconds, cpu + one.cpu_s
            turned.empty()
    return Run(batches * BATCH_ROWS, seconds, cpu)
