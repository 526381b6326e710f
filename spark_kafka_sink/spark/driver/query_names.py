"""The names that users give their streaming queries with `queryName`."""

from __future__ import annotations

import threading
from collections.abc import Container
from typing import Final

MOST_NAMES: Final = 400
"""That are kept. A name takes 200 bytes."""


class QueryNames:
    """The names of a driver's queries by id, kept after a query's end, because Spark forgets it then.

    Threads: any may ask and tell, under the lock. It is not held while the JVM is asked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()  # of these. Who starts one again may give it another name.

    def learn(self, query_id: str, name: str) -> None:
        """Keeps the name of a query. name: empty if it has none."""
        with self._lock:
            self._names.pop(query_id, None)
            self._names[query_id] = name
            self._ended.discard(query_id)
            if len(self._names) > MOST_NAMES:
                oldest = next(iter(self._names))
                del self._names[oldest]
                self._ended.discard(oldest)

    def name(self, query_id: str, active: Container[str] | None = None) -> str:
        """Returns the name of a query; "" if it has none, or if it had ended before anybody asked. It never raises.

        Args:
            query_id: Spark's id of the query.
            active: The ids of the queries that run, if they are known. Spark is not asked for a query that has ended, and asked
                again when it runs again.
        """
        with self._lock:
            known = self._names.get(query_id)
            if active is not None and query_id not in active:
                if known is not None:
                    self._ended.add(query_id)
                return known or ""
            if known is not None and query_id not in self._ended:
                return known
        from spark_kafka_sink.spark.driver.active_queries import active_name  # not with the module: it loads pyspark.sql

        found = active_name(query_id)
        if found is None:
            return known or ""
        self.learn(query_id, found)
        return found
