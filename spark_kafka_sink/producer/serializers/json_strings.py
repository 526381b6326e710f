"""Text in a column as JSON strings, with the escapes of json.dumps(ensure_ascii=False)."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.producer.serializers.binary_arrays import joined
from spark_kafka_sink.records.arrow_arrays import offsets_of, text_scalar

# What a JSON string must not hold as it is, the backslash first: the escapes of the others have one.
_ESCAPED = [ord("\\"), ord('"'), *range(0x20)]


def quoted(column: pa.Array) -> pa.Array:
    """string with quotes around each row; null stays null."""
    for byte in _present(column):
        column = pc.replace_substring(column, chr(byte), json.dumps(chr(byte))[1:-1])
    return joined(text_scalar('"'), column, text_scalar('"'))


def _present(column: pa.Array) -> list[int]:
    """Which of those bytes the column has at all: most columns have none, and each costs a pass over all of it."""
    offsets = offsets_of(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return []
    data = np.frombuffer(column.buffers()[2], np.uint8, last - first, first)
    suspects = data[(data < 0x20) | (data == ord('"')) | (data == ord("\\"))]
    counts = np.bincount(suspects, minlength=256)
    return [byte for byte in _ESCAPED if counts[byte]]
