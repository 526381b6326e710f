"""`publish(df, ...)`: a DataFrame to Kafka from a notebook or a script, with a report to look at."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.arrow_publish import TaskReport, publish_job
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.metrics import DeliveryMetrics
from spark_kafka_sink.spark.options import KAFKA_PREFIX, sink_options
from spark_kafka_sink.spark.progress import progress_bar
from spark_kafka_sink.spark.report_text import html_table, summary, table
from spark_kafka_sink.spark.sink_option import TOPIC
from spark_kafka_sink.spark.worker_python import warn_of_other_python


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What publish() delivered. A notebook shows it as a table.

    total: all of it. tasks: each task's part. seconds: from start to end, Spark's own work included.
    """

    total: DeliveryReport
    tasks: tuple[TaskReport, ...]
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Records acked a second of `seconds`."""
        return self.total.records / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        return f"{self._headline()}\n{table(self.total)}"

    def _repr_html_(self) -> str:
        return f"<p>{self._headline()}</p>{html_table(self.total)}"

    def _headline(self) -> str:
        rate = f"{self.seconds:.1f} s, {self.rows_per_second:,.0f} rows/s, {len(self.tasks):,} tasks"
        return f"{summary(self.total)}; {rate}"


def publish(
    df: DataFrame,
    *,
    topic: str | None = None,
    bootstrap_servers: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    metrics: DeliveryMetrics | None = None,
    progress: bool | None = None,
) -> PublishReport:
    """Write all rows of a batch DataFrame and return when every one is acked: at least once, as a task that is retried writes
    again; with delivery.guarantee=exactly-once when every one is visible, once, and on an error none.

    df: columns as for `format("kafka_sink")`. topic: for all rows; None: the topic column has it.
    bootstrap_servers: host:port, with commas between, or several. options: more, named as for `format("kafka_sink")`.
    metrics: a handle of `register` to count on as well. progress: whether to draw a bar; None: in notebooks and terminals.

    Raises a KafkaSinkError for options and columns; a failed job raises the error of Spark, whose text has ours.
    """
    named = {TOPIC: topic, KAFKA_PREFIX + "bootstrap.servers": bootstrap_servers}
    checked = sink_options(_merged(options or {}, {name: value for name, value in named.items() if value is not None}))
    warn_of_other_python(getattr(df.sparkSession, "_sc", None))
    start = time.monotonic()
    with progress_bar(df.sparkSession, progress):
        tasks = publish_job(df, checked, metrics)
    return PublishReport(total(task.report for task in tasks), tuple(tasks), time.monotonic() - start)


def _merged(options: Mapping[str, object], named: Mapping[str, object]) -> dict[str, object]:
    for name in options:
        if name.lower() in named:
            raise OptionError(f"option {name}: given as an argument too", option=name)
    return {**options, **named}
