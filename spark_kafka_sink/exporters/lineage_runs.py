"""Runs of an application as OpenLineage has them: which events a query or batch job gives, and when. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.exporters.lineage_settings import LineageSettings, joined
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.driver.query_events import QueryBegan, QueryEnded, QueryEvent
from spark_kafka_sink.spark.write_events import Destination, Field, WriteBegan, WriteCommitted, WriteEvent, WriteFailed

COMMAND: Final = "kafka_sink"
"""Stands in the names of jobs where OpenLineage's agent for Spark has Spark's command."""

MOST_OUTPUTS: Final = 100
"""Of an event: those with the most records. Each takes 2 KB with 30 columns."""

MOST_RUNS: Final = 1000
"""That are remembered. More than that cannot run at a time; ends that were not seen leave some."""


class State(Enum):
    """OpenLineage's types of events."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that a run writes.

    Attributes:
        namespace: The cluster, as OpenLineage's naming has it.
        topic: The topic.
        fields: The fields of its records; empty if they are not known.
        records: Records so far, of the whole run; None before the first commit.
        bytes: Their size before compression.
    """

    namespace: str
    topic: str
    fields: tuple[Field, ...] = ()
    records: int | None = None
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunChange:
    """An event of a run.

    Attributes:
        state: Its type.
        at: When, in seconds since the epoch.
        run_id: The run's UUID.
        job: The name of its job.
        is_stream: Whether the job is a streaming query.
        outputs: What it writes, as far as that is known.
        error: Why it failed; None if it did not.
    """

    state: State
    at: float
    run_id: str
    job: str
    is_stream: bool
    outputs: tuple[Output, ...] = ()
    error: str | None = None


@dataclass(slots=True)
class _Run:
    run_id: str
    job: str
    is_stream: bool
    began: float
    is_told: bool = False
    due: float = 0.0
    outputs: dict[tuple[str, str], Output] = field(default_factory=dict)

    def change(self, state: State, at: float, error: str | None = None) -> RunChange:
        outputs = tuple(self.outputs.values())
        if len(outputs) > MOST_OUTPUTS:
            outputs = tuple(sorted(outputs, key=lambda one: one.records or 0, reverse=True)[:MOST_OUTPUTS])
        return RunChange(state, at, self.run_id, self.job, self.is_stream, outputs, error)

    def start(self) -> list[RunChange]:
        """Returns START, once."""
        told, self.is_told = self.is_told, True
        return [] if told else [self.change(State.START, self.began)]

    def goes_to(self, where: Destination) -> None:
        for topic in filter(None, (where.topic, where.letters)):
            self._add(namespace(where), topic, where)

    def wrote(self, report: DeliveryReport, where: Destination) -> None:
        """Adds what a batch has written. The report counts the records of each topic."""
        totals: dict[str, list[int]] = {}
        for (topic, _), one in report.partitions.items():
            total = totals.setdefault(topic, [0, 0])
            total[0] += one.records
            total[1] += one.bytes
        for topic in filter(None, (where.topic, where.letters)):
            totals.setdefault(topic, [0, 0])
        for topic, (records, size) in totals.items():
            self._add(namespace(where), topic, where, records, size)

    def _add(self, cluster: str, topic: str, where: Destination, records: int | None = None, size: int = 0) -> None:
        old = self.outputs.get((cluster, topic))
        count = old.records if old else None
        if records is not None:
            count = (count or 0) + records
        fields = () if topic == where.letters else where.fields
        self.outputs[cluster, topic] = Output(cluster, topic, fields, count, (old.bytes if old else 0) + size)


def namespace(where: Destination) -> str:
    """Returns the dataset's namespace: the first bootstrap server, as OpenLineage's agent for Spark has it."""
    return f"kafka://{where.servers[0]}" if where.servers else "kafka://"


class LineageRuns:
    """Turns events of queries and writes into those of runs. The caller holds a lock.

    A streaming query is a run from its start to its end. RUNNING comes with a commit, if the last one was `interval_s` ago or
    more, or if it had no output yet. A batch job is a run from its plan to its commit. The end of a run may come after the start
    of the query's next one, because Spark tells them in different threads.
    """

    def __init__(self, settings: LineageSettings, interval_s: float, clock: Callable[[], float]) -> None:
        """clock: returns monotonic seconds."""
        self._settings = settings
        self._interval_s = interval_s
        self._clock = clock
        self._runs: dict[str, _Run] = {}  # by the id of the query or job
        self._replaced: dict[str, _Run] = {}  # told, by their own ids: the next run began before their ends came

    def continue_from(self, before: LineageRuns) -> None:
        """Takes over the runs that another one knows, which must not take further events."""
        self._runs, self._replaced = before._runs, before._replaced

    def take(self, event: QueryEvent | WriteEvent) -> list[RunChange]:
        """Returns the events of runs that follow."""
        match event:
            case QueryBegan():
                return self._query_began(event)
            case QueryEnded():
                return self._query_ended(event)
            case WriteBegan():
                run = self._run(event.query_id, event.at, event.destination)
                run.goes_to(event.destination)
                return run.start()
            case WriteCommitted():
                return self._committed(event)
            case WriteFailed():
                return self._failed(event)

    def _query_began(self, event: QueryBegan) -> list[RunChange]:
        run = self._runs.get(event.query_id)
        if run is None or run.run_id != event.run_id:  # a new emitter hears of running queries again
            run = self._new(event.query_id, event.run_id, event.name or event.query_id, event.at)
        # Of a query with foreachBatch it is not known yet whether it writes to Kafka.
        return run.start() if event.is_sinks else []

    def _query_ended(self, event: QueryEnded) -> list[RunChange]:
        run = self._runs.get(event.query_id)
        if run is not None and run.run_id in (event.run_id, _uuid(event.query_id)):
            del self._runs[event.query_id]
        else:
            run = self._replaced.pop(event.run_id, None)
        if run is None or not run.is_told:
            return []
        return [run.change(State.COMPLETE if event.error is None else State.FAIL, event.at, event.error)]

    def _committed(self, event: WriteCommitted) -> list[RunChange]:
        batch, where = event.batch, event.destination
        if not batch.query_id or where is None:  # a micro-batch without tasks does not know its query, and has no rows
            return []
        run = self._run(batch.query_id, batch.began, where)
        had_outputs = bool(run.outputs)
        run.goes_to(where)
        changes = run.start()  # if it was not told yet, and without counts
        run.wrote(batch.report, where)
        at = batch.began + batch.seconds
        if not run.is_stream:
            del self._runs[batch.query_id]
            return [*changes, run.change(State.COMPLETE, at)]
        now = self._clock()
        if now < run.due and (had_outputs or not run.outputs):
            return changes
        run.due = now + self._interval_s
        return [*changes, run.change(State.RUNNING, at)]

    def _failed(self, event: WriteFailed) -> list[RunChange]:
        if not is_job(event.query_id):  # Spark ends the query, or tries the micro-batch again
            return []
        run = self._runs.pop(event.query_id, None)
        if run is None:
            return []
        return [run.change(State.ABORT if event.is_interrupt else State.FAIL, event.at, event.message)]

    def _run(self, query_id: str, at: float, where: Destination) -> _Run:
        run = self._runs.get(query_id)
        if run is not None:
            return run
        name = where.topic or "" if is_job(query_id) else query_id
        # The id of a query stands for that of a run whose start was not seen, such as in another session.
        return self._new(query_id, _uuid(query_id), name, at)

    def _new(self, query_id: str, run_id: str, name: str, at: float) -> _Run:
        old = self._runs.pop(query_id, None)
        if old is not None and old.is_told:
            _keep(self._replaced, old.run_id, old)
        job = joined((self._settings.app_name, COMMAND, name))
        run = _Run(run_id, job, not is_job(query_id), at)
        _keep(self._runs, query_id, run)
        return run


def _keep(runs: dict[str, _Run], name: str, run: _Run) -> None:
    if len(runs) >= MOST_RUNS:
        del runs[next(iter(runs))]
    runs[name] = run


def _uuid(query_id: str) -> str:
    """Returns the UUID in the id of a query or job."""
    try:
        return str(uuid.UUID(query_id.removeprefix("job-")))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, query_id))
