from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_kafka_sink.spark import query_events
from spark_kafka_sink.spark.query_events import END_S, QueryBegan, QueryEnded, QueryEvent, QueryEvents


class Session:
    """A session whose queries are those in `active`. on_look: is called when somebody asks for them."""

    def __init__(self) -> None:
        self.active: list[Any] = []
        self.on_look: Callable[[], object] = lambda: None
        self.streams = SimpleNamespace(addListener=lambda one: None, removeListener=lambda one: None)
        self._jsparkSession = self

    def sharedState(self) -> Session:
        return self

    def activeStreamingQueries(self) -> SimpleNamespace:
        self.on_look()
        return SimpleNamespace(values=lambda: self.active)


def listening(session: Session) -> tuple[QueryEvents, list[QueryEvent]]:
    told: list[QueryEvent] = []
    events = QueryEvents(cast("Any", session), told.append)
    events.begin()
    events.onQueryStarted(cast("Any", SimpleNamespace(id="q", runId="r", name="clicks")))
    return events, told


def test_the_end_of_a_query_that_is_over_is_awaited() -> None:
    session = Session()
    events, told = listening(session)
    ended = cast("Any", SimpleNamespace(id="q", runId="r", exception=None))
    thread = threading.Thread(target=events.onQueryTerminated, args=(ended,))

    def terminate() -> None:
        session.on_look = lambda: None
        thread.start()

    session.on_look = terminate
    events.end()
    thread.join()
    assert [type(event) for event in told] == [QueryBegan, QueryEnded]


def test_the_end_of_a_query_that_goes_on_is_not_awaited() -> None:
    session = Session()
    session.active = [SimpleNamespace(runId=lambda: "r", id=lambda: "q")]
    events, told = listening(session)
    began = time.monotonic()
    events.end()
    assert time.monotonic() - began < END_S
    assert [type(event) for event in told] == [QueryBegan]


def test_an_end_that_never_comes_is_not_awaited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_events, "END_S", 0.2)
    events, told = listening(Session())
    began = time.monotonic()
    events.end()
    events.end()
    assert 0.2 <= time.monotonic() - began < END_S
    assert [type(event) for event in told] == [QueryBegan]
