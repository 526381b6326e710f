"""The history of a query as HTML for notebooks: totals, throughput, latencies and commits over time, and the last micro-batches.

Style and charts are those of delivery reports (reports/report_html.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.report_facts import Fact, Point, thinned
from spark_kafka_sink.reports.report_html import details_html, element, escaped, facts_html, table_html, time_series
from spark_kafka_sink.spark.driver.views.watch_table import duration

if TYPE_CHECKING:
    from spark_kafka_sink.spark.driver.history import QueryHistory

# A chart of 640 pixels shows no more. With more micro-batches neighbours become one point.
_MOST_POINTS: Final = 240


def history_html(history: QueryHistory) -> str:
    """Returns the history as one element of HTML, of under 50 KB however many micro-batches there are."""
    name = f"<p>Committed micro-batches of {escaped(history.title)}</p>"
    if not len(history):
        return element(f"{name}<p>nothing committed yet</p>")
    return element("".join([name, facts_html(_facts(history)), *_charts(history), _last(history)]))


def _facts(history: QueryHistory) -> list[Fact]:
    ends, rates, bad = history.ends_s(), history.rows_per_second(), int(history.column("bad_rows").sum())
    seconds = float(ends.max() - history.column("began").min())
    spread = f"{rates.min():,.0f} to {rates.max():,.0f} rows/s" if len(history) > 1 else ""
    facts = [
        Fact("micro-batches", f"{len(history):,}", f"in {duration(seconds)}"),
        Fact("rows", f"{history.rows:,}", f"{history.column('bytes').sum() / 1e6:,.1f} MB before compression"),
        Fact("rows/s", f"{np.median(rates):,.0f}", f"median; {spread}" if spread else ""),
        Fact("seconds", f"{np.median(history.column('seconds')):,.2f}", "median of a micro-batch"),
        Fact("retries", f"{history.column('retries').sum():,}"),
    ]
    if history.column("transactions").any():
        facts.append(Fact("commit ms", f"{np.median(history.column('commit_ms')):,.0f}", "median"))
    if bad:
        facts.append(Fact("bad rows", f"{bad:,}", counted(int(history.column("dead_letters").sum()), "dead letter")))
    return facts


def _charts(history: QueryHistory) -> list[str]:
    at = history.ends_s() - history.column("began").min()
    rates = thinned(zip(at.tolist(), history.rows_per_second().tolist(), strict=True), _MOST_POINTS)
    each = "each micro-batch" if len(rates) == len(history) else f"{counted(len(rates), 'group')} of neighbouring micro-batches"
    throughput = f"Rows/s of {each}"
    parts = [f"<p>{throughput}</p>{time_series(throughput, rates)}"]
    if not np.isnan(history.column("ack_p99_ms")).all():
        latencies = time_series("Time to acknowledgement in ms", _highest(at, history.column("ack_p99_ms")))
        parts.append(
            f"<p>99 % of record batches were acknowledged within this time, in ms, rounded up to a power of 2</p>{latencies}"
        )
    if history.column("transactions").any():
        commits = _highest(at, history.column("commit_ms"))
        parts.append(f"<p>Time of the commit, in ms</p>{time_series('Time of the commit in ms', commits)}")
    return parts


def _last(history: QueryHistory) -> str:
    header, *cells = history.last_cells()
    rows = [[escaped(cell) for cell in row] for row in cells]
    title = f"the last {len(rows)} of {len(history):,} micro-batches" if len(rows) < len(history) else "micro-batches"
    return details_html(title, table_html(header, rows), is_open=True)


def _highest(at: NDArray[np.float64], values: NDArray[np.float64]) -> list[Point]:
    """Peaks must not vanish in an average. A value that is missing is not counted."""
    starts = np.arange(0, len(at), -(-len(at) // _MOST_POINTS))  # of each group of neighbours
    highest = np.fmax.reduceat(values.astype(np.float64), starts)
    return list(zip(np.maximum.reduceat(at, starts).tolist(), highest.tolist(), strict=True))
