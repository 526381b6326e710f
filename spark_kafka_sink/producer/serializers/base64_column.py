"""Base64 of a binary column, encoded as a whole: rows are filled up to threes of bytes, so that none shares a four of letters."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa

from spark_kafka_sink.producer.serializers.binary_arrays import binary_array, joined, text_array
from spark_kafka_sink.records.arrow_arrays import (
    array_of_bytes,
    array_of_numbers,
    byte_lengths,
    offsets_of,
    scalar_of_bytes,
    valid_mask,
)


def base64_text(column: pa.Array) -> pa.Array:
    """string of each row, padded with '='; null stays null. column: binary."""
    filling = -np.maximum(byte_lengths(column).rows, 0) % 3
    filled = joined(
        column.fill_null(scalar_of_bytes(b"", pa.binary())), array_of_bytes([b"", b"\0", b"\0\0"]).take(array_of_numbers(filling))
    )
    offsets = offsets_of(filled)
    data = memoryview(filled.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
    letters = np.frombuffer(bytearray(binascii.b2a_base64(data, newline=False)), np.uint8)
    ends = (offsets - offsets[0]).astype(np.int64) // 3 * 4
    letters[ends[1:][filling >= 1] - 1] = ord("=")
    letters[ends[1:][filling == 2] - 2] = ord("=")
    return text_array(binary_array(letters, ends, valid_mask(column)))
