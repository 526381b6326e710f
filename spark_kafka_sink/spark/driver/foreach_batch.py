"""`writeStream.foreachBatch(foreach_batch(options))`, for update mode, which Spark does not allow for Python data sources."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.spark.driver.active_queries import active_name
from spark_kafka_sink.spark.driver.explain import linked, plug_in_error, sink_error
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.driver.publish import TaskReport, publish_micro_batch, tell_failed
from spark_kafka_sink.spark.plugin_checks import checked_options
from spark_kafka_sink.spark.python_workers import active_context, check_workers_python
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.task import QUERY_ID

# StreamExecution sets the job group to the run's id.
JOB_GROUP = "spark.jobGroup.id"


class ForeachBatch(SameVersion):
    """Writes each micro-batch that it is called with. `reports` has the reports of the last micro-batch's tasks.

    Spark calls it from another thread, one micro-batch at a time.
    """

    def __init__(self, options: SinkOptions, metrics: DeliveryMetrics | None) -> None:
        self.reports: list[TaskReport] = []
        self._is_reachable = False
        self._options = options
        self._with_schemas: dict[str, SinkOptions] = {}
        # On Spark Connect this object is pickled to the server, and a handle that cannot count has no business there.
        self._metrics = metrics if metrics is not None and metrics.available else None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        handled = sys.exception()
        try:
            if any(not self._shared().isdisjoint(each._shared()) for each in _named_by(sys._getframe(1)) if each is not self):
                raise UsageError(_TWO_SINKS.format(batch=batch_id))
            self._publish(df, batch_id)
        except Exception as error:
            found = sink_error(error, is_certain=True, handled=handled)
            if found is None:
                raise
            raise linked(found) from plug_in_error(found)

    def _publish(self, df: DataFrame, batch_id: int) -> None:
        # Batches after the first survive an outage of Kafka for as long as their options say.
        query_id = _query_id(df)
        call: _Call | None = None
        # A call outside of a query is a job of its own, so that its counts and events have a name.
        is_job = not query_id and self._options.exactly_once is None
        batch = MicroBatch.of_new_job() if is_job else MicroBatch(query_id, batch_id)
        if query_id and (self._options.exactly_once is not None or self._options.report_topic is not None):
            batch = replace(batch, name=active_name(query_id) or "")
        if self._options.exactly_once is not None:
            try:
                call = self._called(*_query_and_run(df), batch_id)
            except UsageError as error:
                tell_failed(self._metrics, batch, error, None)
                raise
        self.reports = publish_micro_batch(
            df, self._options, self._metrics, batch, is_reachable=self._is_reachable, resolve=self._resolved
        )
        if call is not None:
            call.is_committed = True
        self._is_reachable = True

    def _resolved(self, options: SinkOptions, columns: SinkSchema, schema: StructType) -> SinkOptions:
        """Returns the options with schemas. The registry is asked once for the same columns, so an outage of it stops nothing."""
        from spark_kafka_sink.spark.plan.resolved_schemas import resolved_options  # 200 ms, and without schemas not needed

        key = schema.json()
        if key not in self._with_schemas:
            self._with_schemas[key] = resolved_options(options, columns, schema)
        return self._with_schemas[key]

    def _called(self, query_id: str, run_id: str, batch_id: int) -> _Call:
        """Records this call before any task writes, if it may follow the query's previous call in this process."""
        call = _Call(run_id, batch_id, self)
        keys = [(*one, query_id) for one in self._shared()]
        for before in (_last_calls.get(key) for key in keys):
            if before is not None and before.run == run_id:
                _check_follows(before, call)
        _last_calls.update(dict.fromkeys(keys, call))
        return call

    def _shared(self) -> frozenset[tuple[tuple[str, ...], str, str]]:
        """Returns what two sinks of one foreachBatch function must not have in common; nothing without exactly-once."""
        if (names := self._options.exactly_once) is None:
            return frozenset()
        cluster = self._options.producer.bootstrap_servers
        return frozenset({(cluster, "log", names.commit_log.topic), (cluster, "prefix", names.transactional_id_prefix)})


def _named_by(frame: FrameType) -> Iterator[ForeachBatch]:
    """Yields the sinks that the calling function names, so that a second one is found before the first has committed.

    Those that it reaches in another way are found at their own call. A list in a global variable may be for several queries.
    """
    code, known = frame.f_code, {**frame.f_globals, **frame.f_locals}
    for name in (*code.co_varnames, *code.co_freevars, *code.co_names):
        value = known.get(name)
        found = value if isinstance(value, list | tuple) and name in frame.f_locals else (value,)
        yield from (each for each in found if isinstance(each, ForeachBatch))


@dataclass(slots=True)
class _Call:
    """A call of a sink with a batch, in one run of a query."""

    run: str
    batch: int
    sink: ForeachBatch
    is_committed: bool = False


# By cluster, query and commit log, and by cluster, query and prefix of transactional ids: the last call.
_last_calls: dict[tuple[tuple[str, ...], str, str, str], _Call] = {}


_TWO_SINKS: Final = (
    "batch {batch}: two sinks of one foreachBatch have the same commit log, or the same prefix; give each a different sink.name"
)


def _check_follows(before: _Call, call: _Call) -> None:
    """Raises UsageError for a call that could lose or double rows.

    Another sink: what is complete in the log is not written again, so of equally many rows the second's would be lost; of one
    prefix, each would abort what the other has open. The same sink again: the same. A batch after one that was not committed:
    tasks would begin new transactions under the ids of its prepared ones, and so abort those.
    """
    if before.batch == call.batch and before.sink is not call.sink:
        raise UsageError(_TWO_SINKS.format(batch=call.batch))
    if before.batch == call.batch and before.is_committed:
        raise UsageError(
            f"batch {call.batch}: this sink has committed it already, and would write none of these rows; call it once a batch,"
            " with all of its rows. If the whole foreachBatch function is tried again, do not call it again after it has returned"
        )
    if before.batch != call.batch and not before.is_committed:
        raise UsageError(
            f"batch {call.batch}: batch {before.batch} was not committed. Its call has raised an error, or has not returned; let"
            " the error end the query, and start the query again: it goes on with that batch"
        )


def _query_id(df: DataFrame) -> str:
    """Returns the id of the query whose thread this is, for the history; empty on Spark Connect and outside of a query."""
    context = getattr(df.sparkSession, "_sc", None)
    return str((context and context.getLocalProperty(QUERY_ID)) or "")


def _query_and_run(df: DataFrame) -> tuple[str, str]:
    """Returns the ids of the query whose thread this is and of its current run."""
    try:
        context = df.sparkSession.sparkContext
        found = context.getLocalProperty(QUERY_ID)
    except AttributeError:  # PySparkAttributeError
        raise UsageError(
            "delivery.guarantee=exactly-once: Spark Connect does not tell foreachBatch which query it is; use"
            " writeStream.format('kafka_sink'), which does not need it"
        ) from None
    if found is None:
        raise UsageError(
            "delivery.guarantee=exactly-once: this is not called by a streaming query's foreachBatch; use publish(df, ...)"
        )
    # StreamExecution names its thread after the ids of the query and of its run. In another thread of the program's the job
    # group is the run's, too, unless somebody has set another.
    try:
        jvm: Any = context._jvm
        named = re.search(r"runId = ([0-9a-f-]+)", jvm.java.lang.Thread.currentThread().getName())
    except Exception:  # whatever refuses a program the JVM
        named = None
    return str(found), named[1] if named else str(context.getLocalProperty(JOB_GROUP))


def foreach_batch(options: Mapping[str, object], metrics: DeliveryMetrics | None = None) -> ForeachBatch:
    """Returns a function for `writeStream.foreachBatch` that writes each micro-batch to Kafka.

    A micro-batch that Spark replays is written again, unless delivery.guarantee=exactly-once. With exactly-once, one call
    writes the whole batch, and its error must end the query. If one foreachBatch function calls several sinks, each of them
    needs its own sink.name. The function raises a KafkaSinkError, which ends the query and which `explain(query)` finds.

    Args:
        options: As for `format("kafka_sink")`.
        metrics: A handle of `register` that counts the rows.

    Returns:
        A function of a DataFrame and a batch id. Its attribute `reports` lists the TaskReports of the last micro-batch.

    Raises:
        OptionError: An option is wrong. Wrong columns raise with the first micro-batch.
    """
    check_workers_python(active_context())
    checked = checked_options(options)
    if checked.schemas is not None:
        checked = replace(checked, schemas=checked.schemas.loaded())
    return ForeachBatch(checked, metrics)
