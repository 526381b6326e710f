"""Rows for `publish` and `foreach_batch` that come from Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.spark.column_types import quoted
from spark_kafka_sink.spark.driver.interrupts import cancelled_if_interrupted
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.driver.register import make_active
from spark_kafka_sink.spark.driver.views.progress_bar import CallProgress, progress_of
from spark_kafka_sink.spark.plan.first_contact import DRIVER
from spark_kafka_sink.spark.python_workers import check_workers_python
from spark_kafka_sink.spark.schema import SinkSchema, schema_of

if TYPE_CHECKING:
    from spark_kafka_sink.spark.driver.publish import ArrowTask

_RESULT_DDL: Final = "spark_partition int, report binary, share string, began double, ended double"


class SparkInput:
    """A DataFrame, whose tasks run in Spark. `ArrowInput` has the same attributes.

    Attributes:
        who: Names the process that asks Kafka before the tasks, in errors.
        tasks_may_run: Whether tasks may still run after a call has failed.
    """

    who: Final = DRIVER
    tasks_may_run: Final = True

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    @property
    def schema(self) -> StructType:
        """The columns."""
        return self._df.schema

    @property
    def asks_kafka(self) -> bool:
        """Whether this process asks Kafka before the tasks. A client of Spark Connect need not reach it: its tasks ask."""
        return getattr(self._df.sparkSession, "_sc", None) is not None

    def columns(self, options: SinkOptions) -> SinkSchema:
        """Returns the record's columns. Raises before there is anything to abort."""
        check_extra("pandas", "PySpark's mapInArrow, which publish() and foreach_batch() use,")
        if self._df.isStreaming:
            raise UsageError("a streaming DataFrame cannot be published at once; use writeStream.format('kafka_sink')")
        return schema_of(self._df, options)

    @contextmanager
    def followed(self, metrics: DeliveryMetrics | None, progress: bool | None) -> Iterator[CallProgress]:
        """Follows the tasks that run within the block. progress: as of `publish`."""
        session = self._df.sparkSession
        check_workers_python(getattr(session, "_sc", None))
        with progress_of(session, metrics, progress) as shown:
            try:
                yield shown
            except KeyboardInterrupt:
                make_active(session)
                raise

    def cancelled_if_interrupted(self) -> AbstractContextManager[None]:
        """Cancels the tasks that run within the block if it is interrupted."""
        return cancelled_if_interrupted(self._df.sparkSession)

    def run(self, task: ArrowTask, columns: SinkSchema) -> Sequence[tuple[Any, ...]]:
        """Runs the task over each Spark partition. Returns what each returned."""
        # Columns that are not written may have a type that Arrow lacks, and cost time on their way to Python. mapInArrow cannot
        # find a column with a dot in its name, so the columns get other names.
        places = columns.places()
        df = self._df
        selected = df.select(*(quoted(df.columns[place]) for place in places)).toDF(*(f"column{place}" for place in places))

        def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task.run(batches)

        # A nested function is pickled by value: unpickling checks the task's version before it looks up a name of this package.
        return selected.mapInArrow(run_task, _RESULT_DDL).collect()
