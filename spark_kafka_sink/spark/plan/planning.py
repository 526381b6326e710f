"""Plans a write, in a process of Spark's on the driver's machine: checks options and columns, asks Kafka, makes the writer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from pyspark.sql.types import StructType

from spark_kafka_sink.errors import KafkaSinkError, OptionError, UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.installation import check_same_version
from spark_kafka_sink.options.guarantee_options import checkpoint_of, query_of
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.local_variables import without_local_variables
from spark_kafka_sink.spark.plan.exported_error import exported
from spark_kafka_sink.spark.plan.writers import KafkaSinkStreamWriter, KafkaSinkWriter
from spark_kafka_sink.spark.plugin_checks import checked_options, looked_at
from spark_kafka_sink.spark.python_workers import log_in_sparks_process
from spark_kafka_sink.spark.schema import SinkSchema, check_arrow, sink_schema
from spark_kafka_sink.spark.trace_header import with_batch_context
from spark_kafka_sink.spark.write_events import WriteFailed, destination

SERVERS: Final = "kafka.bootstrap.servers"
IN_SQL: Final = (
    f"In SQL, Spark does not hand on the OPTIONS of a table: write INSERT INTO t WITH ('{SERVERS}' = 'host:port', 'topic' ="
    " 'events') SELECT ..., or set them in register(spark, options=...)"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Plans a write of `format("kafka_sink")`. The fields are those of `KafkaSinkDataSource`.

    options: those of the write itself, which replace those of the session.
    """

    feed: Feed
    session_options: Mapping[str, object]
    options: Mapping[str, str] = field(repr=False)
    driver_version: str | None

    @without_local_variables
    def job(self, schema: StructType, *, overwrite: bool) -> KafkaSinkWriter:
        """Returns the writer of a batch job. Raises KafkaSinkError for whatever is known to be wrong before its tasks write."""
        with self._telling_failures(lambda: MicroBatch.of_new_job().query_id):
            if overwrite:
                raise UsageError("mode overwrite: a topic cannot be overwritten; use mode('append')")
            columns, options = self._columns_and_options(schema, is_stream=False)
            writer = KafkaSinkWriter(columns, options, self.feed, destination(options, columns, schema))
            writer.begin()
            return writer

    @without_local_variables
    def stream(self, schema: StructType) -> KafkaSinkStreamWriter:
        """Returns the writer of a micro-batch. Raises as `job` does."""
        checkpoint = checkpoint_of(self.options)
        with self._telling_failures(lambda: query_of(checkpoint) or ""):
            columns, options = self._columns_and_options(schema, is_stream=True)
            where = destination(options, columns, schema)
            feed = self.feed if options.exactly_once is None else self.feed.planned({**self.session_options, **self.options})
            return KafkaSinkStreamWriter(columns, options, feed, where, checkpoint)

    @contextmanager
    def _telling_failures(self, query_id: Callable[[], str]) -> Iterator[None]:
        """Tells the driver program of a write that fails while Spark plans it: then Spark aborts nothing."""
        try:
            yield
        except KafkaSinkError as error:
            self.feed.tell(WriteFailed(query_id(), 0, time.time(), exported(error)))
            raise

    def _columns_and_options(self, schema: StructType, *, is_stream: bool) -> tuple[SinkSchema, SinkOptions]:
        if self.driver_version is not None:
            check_same_version(self.driver_version)
        log_in_sparks_process()
        given = {**self.session_options, **self.options}  # both with lower-cased names
        try:
            options = checked_options(given)
        except OptionError as error:
            if error.facts.get("option") == SERVERS and SERVERS not in given:
                raise OptionError(f"{error.message}. {IN_SQL}", option=SERVERS) from None
            raise
        check_arrow(schema)
        with looked_at(options.producer) as serializers:
            columns = sink_schema(schema, options.topic, serializers, record=options.record, formats=options.formats)
        _check_reachable(options, is_stream=is_stream, has_timestamps=columns.timestamp is not None)
        if options.schemas is not None:
            from spark_kafka_sink.spark.plan.resolved_schemas import resolved_for_stream, resolved_options

            if is_stream:
                options = resolved_for_stream(options, columns, schema, self.options)
            else:
                options = resolved_options(options, columns, schema)
        return columns, with_batch_context(options)  # Spark plans each micro-batch


def _check_reachable(options: SinkOptions, *, is_stream: bool, has_timestamps: bool) -> None:
    """Checks Kafka while Spark plans a write, and creates the topic if `topic.create.*` is set.

    Under exactly-once, a stream's first batch also checks the commit log, as each batch job does (`KafkaSinkWriter.begin`).

    For a stream it does so only until it has succeeded once. Spark plans each micro-batch of a stream, often in a new process. A
    running stream must survive an outage of Kafka, so a file in Spark's folder for temporary files records that the topic was
    reached once in this application. Then a topic that was deleted meanwhile is created again if `topic.create.*` is set.
    """
    # Spark sets it for processes that plan and commit, and removes the folders when the application ends.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not folder:
        return
    commit_log = options.exactly_once if is_stream else None  # with the checkpoint: each query has its own records there
    named = repr((options.producer.bootstrap_servers, options.topic, options.creation, options.errors.topic, commit_log))
    mark = Path(folder) / f"kafka-sink-reached-{sha256(named.encode()).hexdigest()[:16]}"
    is_known = is_stream and mark.exists()
    if is_known and options.creation is None:
        return
    from spark_kafka_sink.spark.plan.first_contact import check_reachable, create_again

    if is_known:
        create_again(options)
        return

    # Made first: a stream must not ask if it cannot record the answer. A check that fails leaves the mark of an earlier one.
    asking = mark.with_name(f"{mark.name}-{os.getpid()}")
    try:
        asking.touch()
    except OSError:
        if not is_stream:
            check_reachable(options, has_timestamps=has_timestamps)
        return
    try:
        check_reachable(options, has_timestamps=has_timestamps)
        if commit_log is not None:
            from spark_kafka_sink.spark.plan.commits import check_query

            check_query(options)
        asking.replace(mark)
    finally:
        asking.unlink(missing_ok=True)
