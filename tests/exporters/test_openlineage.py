"""The ends of queries that an emitter learns of late, or only from the emitter whose place it takes."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from spark_kafka_sink.exporters.lineage_settings import LineageSettings
from spark_kafka_sink.exporters.openlineage import LineageEmitter
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.write_events import Destination, WriteCommitted
from tests.spark.query_session import Query, Session

QUERY = "11111111-1111-4111-8111-111111111111"
RUN = "22222222-2222-4222-8222-222222222222"
COMMITTED = WriteCommitted(BatchReport(QUERY, 0, 100.0, 2.0, DeliveryReport()), 101.0, (), Destination(("a:1",), "events"))


class Client:
    """Keeps state, run and job of the events."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str]] = []

    def emit(self, event: Any) -> None:
        self.sent.append((event.eventType.value, event.run.runId, event.job.name))

    def close(self, timeout: float) -> None:
        pass


def emitter(session: Session, metrics: DeliveryMetrics, client: Client, before: LineageEmitter | None = None) -> LineageEmitter:
    return LineageEmitter(cast("Any", session), metrics, cast("Any", client), LineageSettings(app_name="app"), 0, before)


def stop_query(session: Session) -> threading.Thread:
    """Ends the query as `query.stop()` does: Spark tells it later, in another thread. The next look at the queries begins it."""
    session.active.clear()
    thread = threading.Thread(target=session.end, args=(QUERY, RUN))

    def once() -> None:
        session.on_look = lambda: None
        thread.start()

    session.on_look = once
    return thread


@pytest.mark.parametrize("replaced", [False, True])
def test_a_query_that_ran_before_has_its_run_its_name_and_its_end(metrics: DeliveryMetrics, replaced: bool) -> None:
    session, client = Session(Query(QUERY, RUN, "clicks")), Client()
    one = emitter(session, metrics, client)
    if replaced:
        old, one = one, emitter(session, metrics, client, one)
        old.stop()
    metrics.writes.tell(COMMITTED)
    thread = stop_query(session)
    one.stop()
    thread.join()
    assert client.sent == [(state, RUN, "app.kafka_sink.clicks") for state in ("START", "RUNNING", "COMPLETE")]


def test_an_emitter_that_replaces_another_waits_for_the_end_of_a_query_that_the_first_saw_start(metrics: DeliveryMetrics) -> None:
    session, client = Session(), Client()
    old = emitter(session, metrics, client)
    session.active.append(Query(QUERY, RUN, "clicks"))
    session.start(QUERY, RUN, "clicks")
    one = emitter(session, metrics, client, old)
    old.stop()
    thread = stop_query(session)
    one.stop()
    thread.join()
    assert [state for state, *_ in client.sent] == ["START", "COMPLETE"]
