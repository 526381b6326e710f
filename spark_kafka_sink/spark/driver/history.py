"""The history of a driver's micro-batches and batch jobs: a row of numbers for each that was committed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.delivery_report import Tabular
from spark_kafka_sink.reports.report_facts import printable
from spark_kafka_sink.spark.batch_report import BatchReport, ack_latencies_ms
from spark_kafka_sink.spark.driver.views.history_html import history_html
from spark_kafka_sink.spark.query_totals import QUANTILES

logger = logging.getLogger(__name__)

MOST_BATCHES: Final = 100_000
"""Of all queries together. They take 13 MB; each further one replaces the oldest."""

_SHOWN: Final = 10

_ROW: Final = np.dtype(
    [
        ("query_id", "S40"),
        ("batch", "i8"),
        ("began", "f8"),
        ("seconds", "f4"),
        ("rows", "i8"),
        ("bytes", "i8"),
        ("compressed_bytes", "i8"),
        ("retries", "i4"),
        ("errors", "i4"),
        ("bad_rows", "i8"),
        ("dead_letters", "i8"),
        ("ack_p50_ms", "f4"),
        ("ack_p95_ms", "f4"),
        ("ack_p99_ms", "f4"),
        ("commit_ms", "i4"),
        ("transactions", "i4"),
    ]
)


def _row(batch: BatchReport) -> tuple[Any, ...]:
    report = batch.report
    return (
        batch.query_id.encode(),
        batch.batch,
        batch.began,
        batch.seconds,
        report.records,
        report.bytes,
        report.compressed_bytes,
        report.retries,
        sum(report.errors.values()),
        sum(report.bad_rows.values()),
        report.dead_letters,
        *ack_latencies_ms(report, QUANTILES),
        report.commit_ms,
        report.transactions_committed,
    )


class History:
    """The last MOST_BATCHES committed micro-batches and jobs of a driver, as columns in a ring.

    Threads: any may add and read, under the lock.
    """

    def __init__(self, most: int = MOST_BATCHES) -> None:
        """most: how many are kept."""
        self._lock = threading.Lock()
        self._rows: NDArray[np.void] = np.zeros(most, _ROW)  # takes memory as it is filled
        self._count = 0  # of all that were added

    def add(self, batch: BatchReport) -> None:
        """Adds a batch that was committed."""
        with self._lock:
            self._rows[self._count % len(self._rows)] = _row(batch)
            self._count += 1

    def of(self, query_id: str, name: str = "") -> QueryHistory:
        """Returns what there is of a query or job, oldest first. name: of the query, if it has one."""
        with self._lock:
            size = len(self._rows)
            begin = self._count % size if self._count > size else 0
            rows = np.concatenate([self._rows[begin : min(self._count, size)], self._rows[:begin]])
        return QueryHistory(query_id, rows[rows["query_id"] == query_id.encode()], name)

    def query_ids(self) -> list[str]:
        """Returns the ids of queries and jobs, the one whose last batch is the newest first."""
        with self._lock:
            rows = self._rows[: self._count].copy()
        ids, places = np.unique(rows["query_id"], return_inverse=True)
        newest = np.zeros(len(ids))
        np.maximum.at(newest, places, rows["began"])
        return [ids[place].decode() for place in np.argsort(-newest, kind="stable")]


def history_of(query_id: str, batches: Sequence[BatchReport], name: str) -> QueryHistory:
    """Returns the history of these batches of a query, oldest first. name: of the query; "" without one."""
    return QueryHistory(query_id, np.array([_row(each) for each in batches], _ROW), name)


class QueryHistory(Tabular):
    """The committed micro-batches of a query, oldest first. `print` shows the last ten, and notebooks also show charts.

    Attributes:
        query_id: Spark's id of the query, or the id of a batch job.
        name: The query's name; empty if it has none, or if it ended before anything asked for it.
    """

    def __init__(self, query_id: str, rows: NDArray[np.void], name: str = "") -> None:
        """rows: of the dtype above."""
        self.query_id = query_id
        self.name = name
        self._rows = rows

    def __len__(self) -> int:
        """Returns the number of micro-batches."""
        return len(self._rows)

    @property
    def rows(self) -> int:
        """All acknowledged records."""
        return int(self._rows["rows"].sum())

    @property
    def title(self) -> str:
        """The name of the query, with its id in parentheses, or the id alone."""
        return f"{printable(self.name)} ({self.query_id})" if self.name else self.query_id

    def rows_per_second(self) -> NDArray[np.float64]:
        """Returns the rate of each micro-batch."""
        seconds = np.maximum(self._rows["seconds"], 1e-3)
        rates: NDArray[np.float64] = self._rows["rows"] / seconds
        return rates

    def column(self, name: str) -> NDArray[Any]:
        """Returns a column of `to_arrow` as numbers: `began` in seconds since the epoch, and a latency that is missing as NaN."""
        return self._rows[name]

    def ends_s(self) -> NDArray[np.float64]:
        """Returns when each micro-batch was committed, in seconds since the epoch."""
        ends: NDArray[np.float64] = self._rows["began"] + self._rows["seconds"]
        return ends

    def to_arrow(self) -> pa.Table:
        """Returns a row for each micro-batch.

        The columns are `batch` (int64), `began` (timestamp in UTC), `seconds`, and the counts `rows`, `bytes`,
        `compressed_bytes`, `retries`, `errors`, `bad_rows` and `dead_letters`. `errors` are batches that a broker or the
        network rejected. `ack_p50_ms`, `ack_p95_ms` and `ack_p99_ms` are upper bounds of latencies, null without any.
        `commit_ms` and `transactions` are those of the commit.
        """
        columns = {name: pa.array(np.ascontiguousarray(self._rows[name])) for name in _ROW.names or () if name != "query_id"}
        columns["began"] = pa.array((self._rows["began"] * 1e6).astype("i8"), pa.int64()).cast(pa.timestamp("us", "UTC"))
        for name in ("ack_p50_ms", "ack_p95_ms", "ack_p99_ms"):
            columns[name] = pa.array(np.ascontiguousarray(self._rows[name]), from_pandas=True)
        return pa.table(columns)

    def _repr_html_(self) -> str:
        return history_html(self)

    def __repr__(self) -> str:
        lines = [f"{counted(len(self), 'micro-batch', 'micro-batches')} of {self.title}, {counted(self.rows, 'row')}"]
        cells = list(self.last_cells())
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(lines)

    def last_cells(self) -> Iterable[tuple[str, ...]]:
        """Yields the names of the columns, and the cells of each of the last ten micro-batches."""
        yield _HEADER
        for row, rate in zip(self._rows[-_SHOWN:], self.rows_per_second()[-_SHOWN:], strict=True):
            began = datetime.fromtimestamp(float(row["began"]), UTC).astimezone()
            yield (
                f"{row['batch']:,}",
                f"{began:%H:%M:%S}",
                f"{row['seconds']:,.2f}",
                f"{row['rows']:,}",
                f"{rate:,.0f}",
                f"{row['bytes'] / 1e6:,.1f}",
                "" if np.isnan(row["ack_p99_ms"]) else f"{row['ack_p99_ms']:,.0f}",
                f"{row['commit_ms']:,}",
                f"{row['retries']:,}",
                f"{row['bad_rows']:,}",
            )


_HEADER: Final = ("batch", "began", "seconds", "rows", "rows/s", "MB", "ack p99 ms", "commit ms", "retries", "bad rows")
