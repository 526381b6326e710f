"""The scratch memory of one batch serves the next: page faults would double the time of wide records."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

BATCHES = 5
# Without memory that is kept, there are 2,000 in each batch.
MOST_FAULTS = 100 * BATCHES
PROGRAM = f"""
import resource
from benchmarks.avro_records import AvroRecord
from spark_kafka_sink.formats.avro.avro_fit import fit
from spark_kafka_sink.formats.avro.avro_schema import parse

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

record = AvroRecord(("long", "string", "int", "double", "boolean", "string", "timestamp", "long", "float", "int") * 4, 20)
column = record.column(10_000)
plan = fit(parse(record.schema), column.type)
for _ in range(3):
    plan.encode(column)
before = faults()
for _ in range({BATCHES}):
    plan.encode(column)
print(faults() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc decides when memory goes back to the system")
def test_a_wide_record_is_encoded_in_the_memory_of_the_last_batch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert int(done.stdout) < MOST_FAULTS
