"""As much of a Spark session as listening to its queries needs, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Query:
    """A streaming query. sink: None, if it is foreachBatch's, which has no name."""

    id: str
    runId: str
    name: str | None = None
    sink: str | None = "kafka_sink"

    @property
    def in_jvm(self) -> SimpleNamespace:
        return SimpleNamespace(id=lambda: self.id, runId=lambda: self.runId, name=lambda: self.name, sink=self._sink)

    def _sink(self) -> SimpleNamespace:
        if self.sink is None:
            raise RuntimeError("foreachBatch has no name")
        return SimpleNamespace(name=lambda: self.sink)


class Session:
    """A session with some active queries.

    Attributes:
        active: They.
        others: Those of other sessions.
        on_look: Is called when somebody asks for them.
        refused: What raises: "streams" or "shared state".
        listeners: What listens.
    """

    def __init__(self, *active: Query) -> None:
        self.active = list(active)
        self.others: list[Query] = []
        self.on_look: Callable[[], object] = lambda: None
        self.refused = ""
        self.listeners: list[Any] = []
        self.streams = _Streams(self)
        self._jsparkSession = SimpleNamespace(sharedState=self._shared_state)
        uuid = SimpleNamespace(fromString=str)
        self._jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=uuid)))

    def start(self, query_id: str, run_id: str, name: str | None = None) -> None:
        """Tells listeners that a query started."""
        for one in list(self.listeners):
            one.onQueryStarted(SimpleNamespace(id=query_id, runId=run_id, name=name))

    def end(self, query_id: str, run_id: str) -> None:
        """Tells listeners that a query ended."""
        for one in list(self.listeners):
            one.onQueryTerminated(SimpleNamespace(id=query_id, runId=run_id, exception=None))

    def looked(self, at: str) -> None:
        """Raises if that is refused."""
        if self.refused == at:
            raise PermissionError(f"{at} is not allowed on a shared cluster")
        self.on_look()

    def _shared_state(self) -> SimpleNamespace:
        return SimpleNamespace(activeStreamingQueries=self._all)

    def _all(self) -> SimpleNamespace:
        self.looked("shared state")
        found = {query.id: query.in_jvm for query in (*self.active, *self.others)}
        return SimpleNamespace(get=found.get, values=lambda: list(found.values()))


class _Streams:
    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def active(self) -> list[Query]:
        found = list(self._session.active)
        self._session.looked("streams")
        return found

    def addListener(self, listener: Any) -> None:
        self._session.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:
        self._session.listeners.remove(listener)
