"""Makes `format("kafka_sink")` known without `register`: Spark looks for a `DefaultSource` in packages named pyspark_*.

Spark imports this package without a guard, for each query that uses any Python data source. An error here would break all of
them. So the import needs PySpark alone, and what is wrong with the sink's own libraries is reported when the format is used.

Writes through this class are not counted. `spark_kafka_sink.register(spark)` replaces it in a session with one that counts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

try:
    from pyspark import __version__ as _spark
    from pyspark.sql.datasource import DataSource

    # Before 4.1 Spark does not let a program register a source over one that Spark found itself (SPARK-51919). Counting is worth
    # more than not having to register, so on 4.0 the format is known only where it is registered.
    _is_looked_up = tuple(int(part) for part in _spark.split(".")[:2]) >= (4, 1)
except Exception:  # no PySpark, one without Python data sources, or a broken one
    _is_looked_up = False

if _is_looked_up:

    class DefaultSource(DataSource):
        """The sink, which is imported when a query uses the format."""

        @classmethod
        def name(cls) -> str:
            return "kafka_sink"

        def schema(self) -> StructType | str:
            return self._sink().schema()

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return self._sink().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return self._sink().streamWriter(schema, overwrite)

        def _sink(self) -> DataSource:
            try:
                from spark_kafka_sink.spark.plan.data_source import KafkaSinkDataSource
            except Exception as error:
                # These name cause and fix already.
                if getattr(error, "code", None) == "INSTALLATION" or sys.version_info < (3, 11):
                    raise error from None
                raise ImportError(
                    f'format("kafka_sink") cannot be used: {_one_line(error)}.'
                    f" Repair the package: {sys.executable} -m pip install --force-reinstall spark-kafka-sink"
                ) from None
            return KafkaSinkDataSource(self.options)

    def _one_line(error: Exception) -> str:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]

    __all__ = ["DefaultSource"]
