"""`python -m benchmarks.protobuf`: what a row of Protobuf costs one core, beside Protobuf's own runtime and ptars.

All contenders write the rows of the Avro benchmarks, with a message that is derived from the columns. What counts is the CPU time
of this process.

- This sink writes whole columns, and the six bytes before each value that Confluent's wire format wants.
- Protobuf's runtime (upb) makes a message of each row from a dict that was made before, and serializes it.
- ptars writes whole columns in Rust. It does not write the six bytes, so there is another line with Arrow joining them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

import ptars
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.avro_records import RECORDS, rows_of
from benchmarks.pictures import machine
from spark_kafka_sink.formats.protobuf.protobuf_format import ProtobufFormat
from spark_kafka_sink.formats.schemas.framing import id_prefix
from tests.formats.protobuf.compiling import file_set, message_class

BATCH_ROWS: Final = 10_000  # Spark's rows per Arrow batch
ROWS_OF_UPB: Final = 1_000  # it takes longer
PREFIX: Final = id_prefix(1) + b"\0"
SINK: Final = "this project"
UPB: Final = "Protobuf's runtime (upb), from dicts"
UPB_ALONE: Final = "the same, messages made before"
PTARS: Final = "ptars"
PTARS_PREFIXED: Final = "ptars, with the six bytes"

Write = Callable[[], object]


def writers(name: str, rows: int) -> Mapping[str, Write]:
    """Returns for each contender the function that writes `rows` rows of a record."""
    column = rows_of(name, rows)
    used = ProtobufFormat()
    text = used.derive(column.type, "R")
    plan = used.load(*used.prepared(text, {}, None)).fit(column.type)
    own = message_class(file_set(text), "R")
    values = [{field: one for field, one in row.items() if one is not None} for row in column.to_pylist()]
    messages = [own(**row) for row in values]
    handler = ptars.HandlerPool([own.DESCRIPTOR.file]).get_for_message(own.DESCRIPTOR)
    batch = pa.RecordBatch.from_struct_array(column)
    before, between = pa.scalar(PREFIX, pa.binary()), pa.scalar(b"", pa.binary())
    return {
        SINK: lambda: plan.encode(column, PREFIX),
        UPB: lambda: [own(**row).SerializeToString() for row in values],
        UPB_ALONE: lambda: [message.SerializeToString() for message in messages],
        PTARS: lambda: handler.record_batch_to_array(batch),
        PTARS_PREFIXED: lambda: pc.binary_join_element_wise(before, handler.record_batch_to_array(batch), between),
    }


def measured(name: str, rounds: int) -> Mapping[str, float]:
    """Returns the median nanoseconds of CPU time per row. The contenders take turns, and the first round does not count."""
    taken: dict[str, list[float]] = {}
    by_column, by_row = writers(name, BATCH_ROWS), writers(name, ROWS_OF_UPB)
    for _ in range(rounds + 1):
        for contender in by_column:
            write, rows = (by_row, ROWS_OF_UPB) if contender in (UPB, UPB_ALONE) else (by_column, BATCH_ROWS)
            begun = time.process_time_ns()
            write[contender]()
            taken.setdefault(contender, []).append((time.process_time_ns() - begun) / rows)
    return {contender: median(times[1:]) for contender, times in taken.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.protobuf", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="rounds, of which the medians are printed (%(default)s)")
    rounds = parser.parse_args(arguments).rounds
    print(f"{machine()}\n\n| record | contender | ns per row | times as fast as upb |\n| --- | --- | ---: | ---: |")
    for name, record in RECORDS.items():
        found = measured(name, rounds)
        for contender, ns in found.items():
            print(f"| {len(record.types)} fields | {contender} | {ns:,.0f} | {found[UPB] / ns:.1f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
