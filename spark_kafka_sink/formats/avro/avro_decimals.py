"""Encodes decimals as the bytes of their unscaled number: two's complement, the highest byte first.

Almost every column has only numbers of 64 bits. They are words; others are a matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.avro.avro_schema import Logical
from spark_kafka_sink.formats.nodes import Kernel, MisfitError
from spark_kafka_sink.producer.serializers.arrays import binary_array, first_invalid, fixed_width_array
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.records.arrow_arrays import byte_lengths, numbers, valid_mask
from spark_kafka_sink.records.concat import column_views
from spark_kafka_sink.records.parts import Part, Present
from spark_kafka_sink.records.varints import Packed, Words, varints

_MOST_128: Final = 38  # digits of a decimal128
_MOST_256: Final = 76
_DIGITS_OF_INT64: Final = 20  # also of uint64
_WORD: Final = 8


def decimal_kernel(logical: Logical, size: int | None, kind: pa.DataType) -> Kernel:
    """Returns the kernel for columns of `kind`. size: that of Avro's fixed; None: Avro's bytes."""
    if pa.types.is_integer(kind):
        first: pa.DataType = pa.decimal128(_DIGITS_OF_INT64, 0)
    elif pa.types.is_decimal(kind):
        first = kind
    else:
        raise MisfitError("it must be decimal")
    if logical.precision > _MOST_256:
        raise MisfitError(f"a decimal of more than {_MOST_256} digits is not supported")
    target = (pa.decimal256 if logical.precision > _MOST_128 else pa.decimal128)(logical.precision, logical.scale)
    width = target.byte_width

    def cast(column: pa.Array) -> pa.Array:
        return column.cast(first).cast(target)

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        try:
            unscaled = cast(column) if column.type != target else column
        except pa.ArrowInvalid:
            bad = first_invalid(column, cast)
            assert bad is not None
            raise BadRowError(bad, f"{column[bad].as_py()} does not fit {logical}") from None
        words = _filled_words(unscaled, width, present)
        low, high = words[:, 0], words[:, 1:]
        if ((low >> 63)[:, None] == high).all():
            return _short(low, size)
        return _long(words, size, valid_mask(unscaled))

    return kernel


def _filled_words(column: pa.Array, width: int, present: Present | None) -> NDArray[np.int64]:
    """Returns the 64-bit words of each number, the lowest first, with a number of the column in rows without a value."""
    words = numbers(column, np.dtype((np.void, width))).view(np.int64).reshape(-1, width // _WORD)
    if present is None:
        return words
    return np.where(present.rows[:, None], words, words[present.first()])


def _short(values: NDArray[np.int64], size: int | None) -> Sequence[Part]:
    if size is None:
        lengths = _lengths(values)
        bits: Words | int = lengths << 3
        word = (values.view(np.uint64) << (64 - bits)).byteswap()
        widest = int(lengths.max())
        return [Packed(lengths << 1, 8, 1), Packed(word, bits, widest)]
    if size <= _WORD:
        return [Packed((values << (64 - 8 * size)).view(np.uint64).byteswap(), 8 * size, size)]
    number = Packed(values.view(np.uint64).byteswap(), 64, _WORD)
    filling = (values >> 63).view(np.uint64)
    before: list[Part] = []
    for start in range(0, size - _WORD, _WORD):
        count = min(size - _WORD - start, _WORD)
        before.append(Packed(filling & ((1 << (8 * count)) - 1), 8 * count, count))
    return [*before, number]


def _lengths(values: NDArray[np.int64]) -> Words:
    """Returns the least number of bytes that holds each number and its sign."""
    magnitudes = values ^ (values >> 63)
    greatest = int(magnitudes.max())
    lengths = np.ones(len(values), np.uint64)
    for size in range(1, _WORD):
        limit = 1 << (8 * size - 1)
        if limit > greatest:
            break
        lengths += magnitudes >= limit
    return lengths


def _long(words: NDArray[np.int64], size: int | None, valid: NDArray[np.bool_] | None) -> Sequence[Part]:
    rows, width = len(words), words.shape[1] * _WORD
    data = np.ascontiguousarray(words[:, ::-1]).byteswap().view(np.uint8).reshape(rows, width)
    negative = data[:, :1] >> 7
    if size is not None:
        if size > width:
            data = np.concatenate([np.repeat(negative * np.uint8(255), size - width, axis=1), data], axis=1)
        column = fixed_width_array(np.ascontiguousarray(data[:, -size:]), valid)
        return [column_views(column, byte_lengths(column), None)]
    differs = data != negative * np.uint8(255)
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), width - 1)
    lead = np.take_along_axis(data, first[:, None], axis=1)
    lengths = width - first + ((lead >> 7 != negative)[:, 0] & differs.any(axis=1))
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    kept = np.arange(width) >= (width - lengths)[:, None]
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    column = binary_array(np.ascontiguousarray(data[kept]), offsets, valid)
    return [*varints(lengths), column_views(column, byte_lengths(column), None)]
