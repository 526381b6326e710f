"""`python -m docs.dashboard_picture` writes docs/pictures/dashboard.svg: the panels of the dashboard, from a real run.

Two streams write to an embedded broker for two and a half minutes, with faults. A Prometheus, which must be on PATH or named by
PROMETHEUS, scrapes the driver and evaluates the panels' own queries. matplotlib draws the answers, because this needs no Grafana.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_kafka_sink as sks
from docs.dashboard import Panel, panels
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = Path(__file__).parent / "pictures" / "dashboard.svg"
CAPTION = (
    "Drawn from the panels' queries with matplotlib, not by Grafana. A run of {seconds:.0f} s on an embedded broker, {version}"
)

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
COLUMNS: Final = 3
SCRAPE_S: Final = 2
# As Grafana chooses it: four scrapes or more.
RATE_S: Final = 10

# The first micro-batches are slow, because Spark's Python processes started meanwhile.
WARM_UP_S: Final = 15

Series = list[tuple[str, list[float], list[float]]]
"""Of a panel: the legend, the times in seconds since the first, and the values."""


class Prometheus:
    """A running Prometheus that scrapes one driver. url: its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def version(self) -> str:
        return f"Prometheus {self._get('/api/v1/status/buildinfo')['version']}"

    def wait(self) -> None:
        """Waits until it answers. Raises TimeoutError."""
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                    return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError("Prometheus does not answer") from error
                time.sleep(0.2)

    def series(self, panel: Panel, begin: float, end: float) -> Series:
        """Returns what the queries of a panel return between two times."""
        found: Series = []
        for query in panel.queries:
            expr = query.expr.replace("$job", ".*").replace("$__rate_interval", f"{RATE_S}s")
            asked = {"query": expr, "start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{SCRAPE_S}"}
            for one in self._get(f"/api/v1/query_range?{urllib.parse.urlencode(asked)}")["result"]:
                points = [(float(at) - begin, float(value)) for at, value in one["values"]]
                times, values = [at for at, _ in points], [value for _, value in points]
                found.append((_legend(query.legend, one["metric"]), times, values))
        return found

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return json.load(response)["data"]


def _legend(legend: str, labels: dict[str, str]) -> str:
    """Returns Grafana's legend of a series."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)


@contextmanager
def prometheus(folder: Path, target: int, port: int) -> Iterator[Prometheus]:
    """Yields a Prometheus that scrapes a port of this machine."""
    program = shutil.which(os.environ.get("PROMETHEUS", "prometheus"))
    if program is None:
        sys.exit("prometheus is not on PATH: install Debian's package prometheus, or set PROMETHEUS to the program")
    jobs = [{"job_name": "spark-kafka-sink", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]
    config = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        command = [program, *options, f"--web.listen-address=127.0.0.1:{port}"]
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            made = Prometheus(f"http://127.0.0.1:{port}")
            made.wait()
            yield made
        finally:
            running.terminate()
            running.wait(30)


def streams(spark: SparkSession, servers: str, folder: Path) -> list[StreamingQuery]:
    """Starts two streams: one is exactly-once, the other has bad rows and a rate limit."""
    # Each micro-batch has the same number of rows, so a slow start leaves no backlog.
    rates = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=18_000, numPartitions=2).load()
    orders = rates.selectExpr("cast(value % 1000 as string) as key", "to_json(struct(*)) as value")
    # Every 500th row has a header without a key, which no client can send.
    header = "array(struct(if(value % 500 = 0, null, 'source') as key, cast('web' as binary) as value)) as headers"
    clicks = rates.selectExpr("cast(value as string) as value", header)
    exactly_once = {"delivery.guarantee": "exactly-once", "kafka.transaction.timeout.ms": "60000"}
    limited = {"on.error": "dead-letter", "dead.letter.topic": "dead-letters", "max.records.per.second": "3000"}
    started = []
    for name, rows, more, every in (("orders", orders, exactly_once, "4 seconds"), ("clicks", clicks, limited, "5 seconds")):
        writer = (
            rows.writeStream.format("kafka_sink")
            .queryName(name)
            .options(**{"kafka.bootstrap.servers": servers, "kafka.compression.type": "zstd", "topic": name}, **more)
        )
        started.append(writer.option("checkpointLocation", str(folder / name)).trigger(processingTime=every).start())
    return started


def make_faults(broker: EmbeddedBroker, seconds: float) -> None:
    """Lets the streams run for a time: undisturbed, then with errors, a quota and a slow coordinator, then undisturbed again."""
    time.sleep(0.3 * seconds)
    for _ in range(6):
        broker.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=3)
        broker.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, topic="clicks", times=2)
        time.sleep(0.03 * seconds)
    broker.faults.throttle(ApiKey.PRODUCE, 400, times=25)
    slow = broker.faults.delay(ApiKey.END_TXN, 2000, times=None)
    time.sleep(0.2 * seconds)
    slow.remove()
    time.sleep(0.32 * seconds)


def main(seconds: float = 150) -> None:
    """Runs the streams for `seconds` and writes the picture."""
    spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
    metrics = sks.register(spark)
    server = sks.serve_prometheus(metrics, 0)
    assert server.port is not None
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        for topic in ("orders", "clicks", "dead-letters"):
            broker.create_topic(topic, partitions=6)
        with prometheus(Path(folder), server.port, free_port()) as asked:
            queries = streams(spark, broker.bootstrap_servers, Path(folder))
            try:
                until_committed(metrics, len(queries))
                time.sleep(WARM_UP_S)
                begin = time.time()
                make_faults(broker, seconds)
            finally:
                for query in queries:
                    query.stop()
            end = time.time()
            drawn = [(panel, asked.series(panel, begin, end)) for panel in panels()]
            draw(FILE, drawn, CAPTION.format(seconds=end - begin, version=asked.version))
    server.stop()
    spark.stop()


def until_committed(metrics: sks.DeliveryMetrics, queries: int) -> None:
    """Waits until each query has committed a micro-batch with rows: the first ones start Spark's Python processes."""
    deadline = time.monotonic() + 180
    while len([one for one in metrics.totals().values() if one.records]) < queries:
        if time.monotonic() > deadline:
            raise TimeoutError("the streams commit nothing")
        time.sleep(0.5)


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def draw(path: Path, drawn: Sequence[tuple[Panel, Series]], caption: str) -> None:
    """Draws the panels with their series, three beside each other, as SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = -(-len(drawn) // COLUMNS)
    with mpl.rc_context(
        {"svg.hashsalt": "spark-kafka-sink", "svg.fonttype": "none", "font.size": 8, "font.sans-serif": ["DejaVu Sans"]}
    ):
        figure, grid = plt.subplots(rows, COLUMNS, figsize=(9, 2.05 * rows), layout="constrained")
        for axes, (panel, series) in zip(grid.flat, drawn, strict=False):
            _panel(axes, panel, series)
            axes.set_xlim(0, max(times[-1] for _, found in drawn for _, times, _ in found))
        figure.supxlabel(f"{caption}, {datetime.now(UTC).date().isoformat()}. Time in seconds.", fontsize=6, color="#666666")
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # a hundredth of a point; it halves the file
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()), encoding="utf-8")


UNITS: Final = {"cps": "per second", "Bps": "MB per second", "s": "seconds", "short": ""}


def _panel(axes: Axes, panel: Panel, series: Series) -> None:
    scale = 1e-6 if panel.unit == "Bps" else 1
    for (legend, times, values), color in zip(series, COLORS, strict=False):
        axes.plot(times, [scale * value for value in values], color=color, linewidth=1.1, label=legend)
    title = f"{panel.title}, {UNITS[panel.unit]}" if UNITS[panel.unit] else panel.title
    axes.set_title(title, fontsize=7.5, loc="left")
    axes.set_ylim(bottom=0, top=None if any(any(values) for _, _, values in series) else 1)
    axes.tick_params(labelsize=6.5, length=2)
    axes.locator_params(nbins=4)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#e3e3e3", linewidth=0.5)
    axes.set_axisbelow(True)
    if series:
        columns = 1 if max(len(legend) for legend, _, _ in series) > 20 else 2
        axes.legend(fontsize=6.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=columns)


if __name__ == "__main__":
    main()
    print(FILE, file=sys.stderr)
