"""`format("kafka_sink")`: the class that Spark looks up.

Spark loads this module in each of its Python processes, and the first micro-batch waits for all of their imports. So what plans
a write is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.options.secret import HiddenValues
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from spark_kafka_sink.spark.plan.planning import Plan

NAME = "kafka_sink"

NO_OPTIONS: Mapping[str, object] = HiddenValues()


class KafkaSinkDataSource(DataSource):
    """Its writers check options and schema before any task starts, in `planning.py`.

    Constructors have no effects, because Spark calls them again in the process that commits.
    """

    feed: ClassVar[Feed] = Feed()
    session_options: ClassVar[Mapping[str, object]] = NO_OPTIONS
    driver_version: ClassVar[str | None] = None  # None: it was not pickled by a driver

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return self._plan().job(schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """`overwrite` means complete mode: each batch appends the whole result again, as with Spark's own Kafka sink."""
        return self._plan().stream(schema)

    def _plan(self) -> Plan:
        from spark_kafka_sink.spark.plan.planning import Plan

        return Plan(self.feed, self.session_options, self.options, self.driver_version)

    def schema(self) -> NoReturn:
        raise UsageError(f"{NAME} only writes; read a topic with format('kafka')")


def reporting_to(feed: Feed, options: Mapping[str, object] = NO_OPTIONS) -> type[KafkaSinkDataSource]:
    """Returns a data source class bound to a metrics handle and a session's options.

    It is a class because Spark creates the instances itself. Spark gets it pickled, so it shows none of the options.
    """

    class ReportingKafkaSinkDataSource(KafkaSinkDataSource):
        pass

    # The class is pickled by value, without attributes that are its base's. The base comes from the process that unpickles it.
    ReportingKafkaSinkDataSource.driver_version = __version__
    ReportingKafkaSinkDataSource.feed = feed
    ReportingKafkaSinkDataSource.session_options = HiddenValues({name.lower(): value for name, value in options.items()})
    return ReportingKafkaSinkDataSource
