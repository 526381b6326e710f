"""The scratch memory of one batch serves the next: page faults would double the time of wide records."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FIELDS, ROWS, BATCHES = 20, 10_000, 5
# A fault for each page of the scratch memory would be 2,000 in each batch.
MOST_FAULTS = 100 * BATCHES
PROGRAM = f"""
import json, resource
import numpy as np
import pyarrow as pa
from spark_kafka_sink.producer.serializers.avro.avro_fit import fit
from spark_kafka_sink.producer.serializers.avro.avro_schema import parse
from spark_kafka_sink.records.arrow_arrays import array_of_numbers

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

names = [f"f{{number}}" for number in range({FIELDS})]
valid = np.arange({ROWS}) % 10 > 0
columns = [array_of_numbers(np.arange({ROWS}) << number, valid) for number in range({FIELDS})]
column = pa.StructArray.from_arrays(columns, names)
schema = dict(type="record", name="R", fields=[dict(name=name, type=["null", "long"]) for name in names])
plan = fit(parse(json.dumps(schema)), column.type)
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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)

    assert int(done.stdout) < MOST_FAULTS
