"""Emits the lineage of what a driver writes to Kafka, as events of OpenLineage, made with the classes of its Python client."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exporters.lineage_runs import LineageRuns, Output, RunChange, State
from spark_kafka_sink.exporters.lineage_settings import LineageSettings, OuterRun, lineage_settings
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.spark.driver.event_queue import NOISY, EventQueue, error_text
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.driver.query_events import QueryEvent, QueryEvents
from spark_kafka_sink.spark.write_events import Field, WriteEvent
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import OutputDataset, RunEvent
    from openlineage.client.facet_v2 import RunFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
"""Between two RUNNING events of a query, by default."""

STOP_S: Final = 10.0
_AT_EXIT_S: Final = 5.0
_USED_BY: Final = "emit_lineage()"


class LineageEmitter:
    """Emits lineage. `emit_lineage` makes it.

    Threads: Spark's and the metrics listener's threads hand events over, under the lock. A daemon thread sends them. `stop()` may
    be called from any thread. Processes: a forked child emits nothing, and `stop()` does nothing there, also at its end: it would
    remove the listener that its parent has in the JVM.
    """

    def __init__(
        self,
        spark: SparkSession,
        metrics: DeliveryMetrics,
        client: OpenLineageClient,
        settings: LineageSettings,
        interval_s: float,
        before: LineageEmitter | None = None,
    ) -> None:
        """Begins to listen. before: the emitter whose place it takes, with what it knows of the runs. Stop it afterwards."""
        # Shared, because both take events until `before` ends.
        self._lock: threading.Lock = threading.Lock() if before is None else before._lock
        self._runs = LineageRuns(settings, interval_s, time.monotonic)
        if before is not None:
            self._runs.continue_from(before._runs)
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._queue = EventQueue[RunChange]("OpenLineage", self._send, lambda change: change.state is State.RUNNING, quiet=NOISY)
        self._queries = QueryEvents(spark, self._take)
        self._queries.begin()
        if before is not None:
            metrics.writes.remove(before._take)
        metrics.writes.add(self._take)
        if before is not None:
            before._end()
        self._process = os.getpid()
        atexit.register(self._at_exit)

    def stop(self, timeout: float = STOP_S) -> None:
        """Stops emitting. A query that still runs gets no further events. A second call does nothing.

        Args:
            timeout: Seconds to wait for events that are not sent yet. One warning says how many were lost. Before that it
                waits up to 2 s for Spark to report the end of a query that has just ended.
        """
        if os.getpid() != self._process:
            return
        self._end()
        with _emitters_lock:
            if _emitters.get(self._metrics) is self:
                del _emitters[self._metrics]
            is_shared = any(one._client is self._client for one in _emitters.values())
        self._queue.stop(timeout)
        if is_shared:
            return
        try:
            self._client.close(timeout=0)
        except Exception as error:
            logger.debug("OpenLineage's client: %s", type(error).__name__)

    def _end(self) -> None:
        atexit.unregister(self._at_exit)
        self._metrics.writes.remove(self._take)
        self._queries.end()

    def _at_exit(self) -> None:
        self.stop(_AT_EXIT_S)

    def _take(self, event: QueryEvent | WriteEvent) -> None:
        with self._lock:  # so that the events of a run stay in order
            for change in self._runs.take(event):
                self._queue.put(change)

    def _send(self, change: RunChange) -> None:
        self._client.emit(run_event(change, self._settings))


class _NoLineage(LineageEmitter):
    """Stands in where Spark or a setting does not allow to emit."""

    def __init__(self) -> None:
        self._process = -1  # `stop()` does nothing


def emit_lineage(
    spark: SparkSession,
    metrics: DeliveryMetrics,
    *,
    interval: float = INTERVAL_S,
    client: OpenLineageClient | None = None,
) -> LineageEmitter:
    """Emits OpenLineage events for what this driver writes to Kafka: see [lineage](monitoring.md#lineage).

    `publish` and `foreach_batch` do so if they get `metrics`. A query that runs already gives START at once. A collector that
    is down or slow delays nothing: one warning is logged, and up to 1,000 events wait. On Spark Connect nothing is emitted, and
    one warning says so. A second call with the same `metrics` replaces the first one's emitter.

    Args:
        spark: The session. Streaming queries of other sessions give no COMPLETE or FAIL.
        metrics: The result of `register(spark)`.
        interval: The least time in seconds between two RUNNING events of a query.
        client: OpenLineage's client, if the program has one. It is closed by `stop()`.

    Raises:
        InstallationError: openlineage-python is missing.
        UsageError: `interval` is negative, or OpenLineage's client refuses its settings.
    """
    check_extra("openlineage.client", _USED_BY)
    if interval < 0:
        raise UsageError(f"emit_lineage: interval is {interval}, must be 0 or more")
    if not metrics.available:
        logger.warning("lineage is not emitted: this session has no SparkContext that the driver program can use")
        return _NoLineage()
    settings = lineage_settings(dict(spark.sparkContext.getConf().getAll()), os.environ, spark.version)
    if settings.problems:
        logger.warning("lineage: some settings are ignored: %s", "; ".join(settings.problems))
    if settings.is_disabled:
        return _NoLineage()
    client = client or _client(settings)
    with _emitters_lock:
        old = _emitters.get(metrics)
        _emitters[metrics] = made = LineageEmitter(spark, metrics, client, settings, interval, old)
    if old is not None:
        old.stop()
    return made


def _client(settings: LineageSettings) -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    config: dict[str, Any] | None = None if settings.transport is None else {"transport": dict(settings.transport)}
    try:
        return OpenLineageClient(config=config)
    except Exception as error:  # KeyError, ValueError, TypeError, ImportError, ...: each transport has its own
        text = f"{type(error).__name__}: {error_text(error)}"
        raise UsageError(f"emit_lineage: OpenLineage's client refuses its settings: {text}") from None


_emitters_lock = threading.Lock()
_emitters: dict[DeliveryMetrics, LineageEmitter] = {}


# OpenLineage's own events


PRODUCER: Final = f"https://github.com/spark-kafka-sink/spark-kafka-sink/tree/v{__version__}"


def run_event(change: RunChange, settings: LineageSettings) -> RunEvent:
    """Returns the event of a run's change."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job

    kind = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if change.is_stream else "BATCH", integration="SPARK", jobType="JOB", producer=PRODUCER
    )
    return RunEvent(
        eventType=RunState(change.state.value),
        eventTime=datetime.fromtimestamp(change.at, UTC).isoformat(timespec="milliseconds"),
        run=Run(runId=change.run_id, facets=_run_facets(change, settings)),
        job=Job(namespace=settings.namespace, name=change.job, facets={"jobType": kind}),
        outputs=[_dataset(output) for output in change.outputs],
        inputs=[],
        producer=PRODUCER,
    )


def _run_facets(change: RunChange, settings: LineageSettings) -> dict[str, RunFacet]:
    from openlineage.client.facet_v2 import error_message_run, processing_engine_run

    facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=settings.spark_version, name="spark", openlineageAdapterVersion=__version__, producer=PRODUCER
        )
    }
    if settings.parent is not None:
        facets["parent"] = _parent(settings.parent, settings.root)
    if change.error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=change.error, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return facets


def _parent(parent: OuterRun, root: OuterRun | None) -> RunFacet:
    from openlineage.client.facet_v2 import parent_run

    outermost = None
    if root is not None:
        outermost = parent_run.Root(
            run=parent_run.RootRun(runId=root.run_id), job=parent_run.RootJob(namespace=root.namespace, name=root.name)
        )
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=parent.run_id),
        job=parent_run.Job(namespace=parent.namespace, name=parent.name),
        root=outermost,
        producer=PRODUCER,
    )


def _dataset(output: Output) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import datasource_dataset, output_statistics_output_dataset, schema_dataset

    facets: dict[str, Any] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(name=output.namespace, uri=output.namespace, producer=PRODUCER)
    }
    if output.fields:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=[_field(one) for one in output.fields], producer=PRODUCER)
    written: dict[str, Any] = {}
    if output.records is not None:
        written["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=output.records, size=output.bytes, producer=PRODUCER
        )
    return OutputDataset(namespace=output.namespace, name=output.topic, facets=facets, outputFacets=written)


def _field(field: Field) -> SchemaDatasetFacetFields:
    from openlineage.client.facet_v2 import schema_dataset

    inner = [_field(one) for one in field.fields]
    return schema_dataset.SchemaDatasetFacetFields(
        name=field.name, type=field.type, description=field.text or None, fields=inner or None
    )
