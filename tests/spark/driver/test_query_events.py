"""Which starts and ends of queries are told, with a session that only pretends to have a JVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_kafka_sink.spark.driver import query_events
from spark_kafka_sink.spark.driver.query_events import QueryBegan, QueryEnded, QueryEvent, QueryEvents
from tests.spark.query_session import Query, Session
from tests.waiting import HOUR_S


def events_of(session: Session) -> tuple[QueryEvents, list[QueryEvent]]:
    told: list[QueryEvent] = []
    return QueryEvents(cast("Any", session), told.append), told


def test_a_query_that_runs_already_is_told() -> None:
    session = Session(Query("q", "r", "clicks", "kafka_sink"), Query("p", "s", None, "memory"), Query("o", "t", "calls", None))
    session.others.append(Query("of another session", "u", "other", "kafka_sink"))
    events, told = events_of(session)
    assert events.begin()
    began = [(one.query_id, one.run_id, one.name, one.is_sinks) for one in told if isinstance(one, QueryBegan)]
    assert began == [("q", "r", "clicks", True), ("p", "s", "", False), ("o", "t", "calls", False)]
    session.active.clear()
    session.end("q", "r")
    assert [(type(one), one.query_id, one.run_id) for one in told[3:]] == [(QueryEnded, "q", "r")]


def test_a_query_that_starts_at_the_same_moment_is_told_once() -> None:
    session = Session(Query("q", "r"))
    events, told = events_of(session)
    session.on_look = lambda: session.start("q", "r")
    events.begin()
    session.start("q", "r")
    assert [type(event) for event in told] == [QueryBegan]


def test_a_query_that_ends_at_the_same_moment_does_not_begin_afterwards() -> None:
    session = Session(Query("q", "r"))
    events, told = events_of(session)

    def end() -> None:
        session.on_look = lambda: None
        session.end("q", "r")

    session.on_look = end
    events.begin()
    assert [type(event) for event in told] == [QueryEnded]


@pytest.mark.parametrize("what", ["streams", "shared state"])
def test_a_session_that_refuses_to_list_its_queries_is_listened_to(what: str) -> None:
    session = Session(Query("q", "r", "clicks", "kafka_sink"))
    session.refused = what
    events, told = events_of(session)
    assert events.begin()
    session.start("q", "new")
    session.end("q", "new")
    kinds = [type(event) for event in told]
    assert kinds == [QueryBegan, QueryEnded] if what == "streams" else [QueryBegan, QueryBegan, QueryEnded]
    events.end()


def end_while(session: Session, terminate: Callable[[], object], events: QueryEvents) -> None:
    """Ends listening. Another thread tells the end of a query once that is waited for."""
    thread = threading.Thread(target=terminate)

    def looked() -> None:
        session.on_look = lambda: None
        thread.start()

    session.on_look = looked
    events.end()
    thread.join()


def test_the_end_of_a_query_that_ran_before_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_events, "END_S", HOUR_S)
    session = Session(Query("q", "r"))
    events, told = events_of(session)
    events.begin()
    session.active.clear()
    end_while(session, lambda: session.end("q", "r"), events)
    assert [type(event) for event in told] == [QueryBegan, QueryEnded]


def listening(session: Session) -> tuple[QueryEvents, list[QueryEvent]]:
    events, told = events_of(session)
    events.begin()
    events.onQueryStarted(cast("Any", SimpleNamespace(id="q", runId="r", name="clicks")))
    return events, told


def test_the_end_of_a_query_that_is_over_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_events, "END_S", HOUR_S)
    session = Session()
    events, told = listening(session)
    ended = cast("Any", SimpleNamespace(id="q", runId="r", exception=None))
    end_while(session, lambda: events.onQueryTerminated(ended), events)
    assert [type(event) for event in told] == [QueryBegan, QueryEnded]


def test_the_end_of_a_query_that_goes_on_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_events, "END_S", HOUR_S)
    session = Session()
    session.active.append(Query("q", "r"))
    events, told = listening(session)
    events.end()
    assert [type(event) for event in told] == [QueryBegan]


def test_an_end_that_never_comes_is_not_awaited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_events, "END_S", 0.2)
    events, told = listening(Session())
    began = time.monotonic()
    events.end()
    events.end()
    assert time.monotonic() - began >= 0.2
    assert [type(event) for event in told] == [QueryBegan]
