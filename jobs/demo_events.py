"""The demo's input: Parquet files of shop events, the same bytes in every run and on every machine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

SEED = 20260101
CUSTOMERS = 50_000
FIRST_EVENT_US = 1_767_225_600_000_000  # 2026-01-01 00:00 UTC
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KINDS = pa.array(["viewed", "added to basket", "bought", "sent back", "rated ★★★★★"])


def write_events(folder: Path, rows: int, files: int) -> None:
    """`rows` events over `files` files of `folder`, which is made."""
    folder.mkdir()
    random = np.random.PCG64(SEED)
    bounds = np.linspace(0, rows, files + 1).astype(int).tolist()
    for number, (start, end) in enumerate(pairwise(bounds)):
        # uncompressed: reading it is no part of what the demo shows
        pq.write_table(events(random, start, end), folder / f"events-{number:03}.parquet", compression="none")


def events(random: np.random.PCG64, start: int, end: int) -> pa.Table:
    """Events `start` to `end`: 1 in 100 has no key, 1 in 200 is a tombstone (no value), 1 in 10 has no headers, and 1 in 50
    of the header values is null. Timestamps have microseconds, of which Kafka keeps the milliseconds.
    """
    ids = np.arange(start, end)
    customers = _text("customer-", _drawn(random, len(ids), CUSTOMERS))
    timestamps = FIRST_EVENT_US + ids * 25_000 + _drawn(random, len(ids), 25_000)
    return pa.table(
        {
            "key": _null_each(customers, ids, 100),
            "value": _null_each(_values(random, ids).cast(pa.binary()), ids + 7, 200),
            "headers": _headers(ids),
            "timestamp": pa.array(timestamps).cast(pa.timestamp("us", "UTC")),
            "comment": _text("a column that is no part of a record, ", ids),
        }
    )


def _values(random: np.random.PCG64, ids: NDArray[np.int64]) -> pa.Array:
    kinds = KINDS.take(pa.array(_drawn(random, len(ids), len(KINDS))))
    cents = pa.array(1 + _drawn(random, len(ids), 99_999)).cast(pa.string())
    return _joined('{"event":', pa.array(ids).cast(pa.string()), ',"kind":"', kinds, '","cents":', cents, "}")


def _headers(ids: NDArray[np.int64]) -> pa.Array:
    """Two headers an event, `trace` and `source`; no list where the event has none."""
    traces = _null_each(_text("trace-", ids), ids, 50)
    sources = pa.array(["web", "app", "store", "phone"]).take(pa.array(ids % 4))
    both = pa.chunked_array([traces, sources]).combine_chunks()
    values = both.take(pa.array(np.arange(2 * len(ids)).reshape(2, -1).T.ravel()))
    keys = pa.array(["trace", "source"]).take(pa.array(np.tile([0, 1], len(ids))))
    pairs = pa.StructArray.from_arrays([keys, values.cast(pa.binary())], fields=list(HEADER_TYPE.value_type))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * len(ids) + 1, 2), pa.int32()), pairs)
    return _null_each(lists, ids + 3, 10)


def _drawn(random: np.random.PCG64, count: int, below: int) -> NDArray[np.int64]:
    """Numbers from 0. numpy keeps the bits of a generator the same over its versions, but not what it makes of them."""
    bits: NDArray[np.uint64] = random.random_raw(count)
    return (bits >> np.uint64(1)).astype(np.int64) % below


def _text(prefix: str, numbers: NDArray[np.int64]) -> pa.Array:
    return _joined(prefix, pa.array(numbers).cast(pa.string()))


def _joined(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _null_each(column: pa.Array, ids: NDArray[np.int64], one_in: int) -> pa.Array:
    """The column with a null wherever `ids` is a multiple of `one_in`."""
    nulls = pa.array(ids % one_in == 0)
    return pc.if_else(nulls, pa.scalar(None, column.type), column)
