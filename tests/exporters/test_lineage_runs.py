"""Which events of runs follow from queries and writes."""

from __future__ import annotations

from spark_kafka_sink.exporters.lineage_runs import MOST_OUTPUTS, MOST_RUNS, LineageRuns, RunChange, State
from spark_kafka_sink.exporters.lineage_settings import LineageSettings
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.query_events import QueryBegan, QueryEnded
from spark_kafka_sink.spark.write_events import Destination, Field, WriteBegan, WriteCommitted, WriteFailed

QUERY = "11111111-1111-4111-8111-111111111111"
RUN = "22222222-2222-4222-8222-222222222222"
JOB = "job-33333333333343338333333333333333"
FIELDS = (Field("value", "string"),)
WHERE = Destination(("broker-1:9092", "broker-2:9092"), "events", None, FIELDS)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def runs(clock: Clock | None = None) -> LineageRuns:
    return LineageRuns(LineageSettings(app_name="my_app"), 60.0, clock or Clock())


def committed(query: str = QUERY, batch: int = 0, where: Destination | None = WHERE, topic: str = "events") -> WriteCommitted:
    report = DeliveryReport(records=10, partitions=PartitionReports({(topic, 0): PartitionReport(10, 200, 0, 9)}))
    return WriteCommitted(BatchReport(query, batch, 100.0, 2.0, report), 101.0, (), where)


def began(*, is_sinks: bool = True, name: str = "", run: str = RUN) -> QueryBegan:
    return QueryBegan(QUERY, run, name, 50.0, is_sinks)


def ended(error: str | None = None, run: str = RUN) -> QueryEnded:
    return QueryEnded(QUERY, run, 200.0, error)


def states(changes: list[RunChange]) -> list[State]:
    return [one.state for one in changes]


def test_a_stream_starts_runs_and_completes() -> None:
    found = runs()
    changes = [*found.take(began(name="clicks")), *found.take(committed()), *found.take(ended())]
    assert states(changes) == [State.START, State.RUNNING, State.COMPLETE]
    assert {(one.run_id, one.job, one.is_stream) for one in changes} == {(RUN, "my_app.kafka_sink.clicks", True)}
    assert [one.at for one in changes] == [50.0, 102.0, 200.0]
    (output,) = changes[-1].outputs
    assert (output.namespace, output.topic, output.fields) == ("kafka://broker-1:9092", "events", FIELDS)
    assert (output.records, output.bytes) == (10, 200)


def test_a_query_without_a_name_is_named_by_its_id() -> None:
    (start,) = runs().take(began())
    assert start.job == f"my_app.kafka_sink.{QUERY}"


def test_running_comes_once_an_interval_and_counts_the_whole_run() -> None:
    clock = Clock()
    found = runs(clock)
    found.take(began())
    assert states(found.take(committed())) == [State.RUNNING]
    clock.now += 59
    assert found.take(committed(batch=1)) == []
    clock.now += 1
    (running,) = found.take(committed(batch=2))
    assert running.outputs[0].records == 30


def test_the_first_topics_are_told_at_once_and_new_ones_with_the_next_interval() -> None:
    clock, where = Clock(), Destination(("broker-1:9092",), None, None, FIELDS)
    found = runs(clock)
    found.take(began())
    empty = WriteCommitted(BatchReport(QUERY, 0, 100.0, 2.0, DeliveryReport()), 101.0, (), where)
    (running,) = found.take(empty)
    assert running.outputs == ()
    (running,) = found.take(committed(batch=1, where=where))
    assert [one.topic for one in running.outputs] == ["events"]
    assert found.take(committed(batch=2, where=where, topic="other")) == []
    clock.now += 60
    (running,) = found.take(committed(batch=3, where=where))
    assert [one.topic for one in running.outputs] == ["events", "other"]


def test_a_failed_stream_fails_with_the_error() -> None:
    found = runs()
    found.take(began())
    (end,) = found.take(ended("[NO_LEADER] topic 'events': ..."))
    assert (end.state, end.error) == (State.FAIL, "[NO_LEADER] topic 'events': ...")


def test_foreach_batch_starts_at_its_first_batch_with_the_time_of_the_query() -> None:
    found = runs()
    assert found.take(began(is_sinks=False)) == []
    (start,) = found.take(WriteBegan(QUERY, 0, 99.0, WHERE))
    assert (start.state, start.at, start.outputs[0].topic) == (State.START, 50.0, "events")
    assert found.take(WriteBegan(QUERY, 1, 99.0, WHERE)) == []
    assert states(found.take(ended())) == [State.COMPLETE]


def test_a_query_that_writes_elsewhere_gives_no_event() -> None:
    found = runs()
    assert [*found.take(began(is_sinks=False)), *found.take(ended())] == []


def test_a_batch_job_starts_and_completes() -> None:
    found = runs()
    changes = [*found.take(WriteBegan(JOB, 0, 90.0, WHERE)), *found.take(committed(JOB))]
    assert states(changes) == [State.START, State.COMPLETE]
    assert {(one.run_id, one.job, one.is_stream) for one in changes} == {
        ("33333333-3333-4333-8333-333333333333", "my_app.kafka_sink.events", False)
    }
    assert [one.outputs[0].records for one in changes] == [None, 10]


def test_a_job_whose_column_names_the_topics_is_named_without_one() -> None:
    (start,) = runs().take(WriteBegan(JOB, 0, 90.0, Destination(("broker-1:9092",))))
    assert (start.job, start.outputs) == ("my_app.kafka_sink", ())


def test_a_dot_of_a_topic_is_no_separator_in_a_jobs_name() -> None:
    (start,) = runs().take(WriteBegan(JOB, 0, 90.0, Destination(("broker-1:9092",), "shop.orders")))
    assert start.job == "my_app.kafka_sink.shop_orders"
    assert start.outputs[0].topic == "shop.orders"


def test_a_failed_job_fails_and_an_interrupted_one_aborts() -> None:
    for is_interrupt, state in ((False, State.FAIL), (True, State.ABORT)):
        found = runs()
        found.take(WriteBegan(JOB, 0, 90.0, WHERE))
        assert states(found.take(WriteFailed(JOB, 0, 95.0, "why", is_interrupt))) == [state]
        assert found.take(WriteFailed(JOB, 0, 96.0, "again")) == []


def test_a_failed_micro_batch_is_not_the_end_of_its_query() -> None:
    found = runs()
    found.take(began())
    assert found.take(WriteFailed(QUERY, 0, 95.0, "why")) == []
    assert states(found.take(ended())) == [State.COMPLETE]


def test_the_end_of_an_earlier_run_does_not_end_the_next() -> None:
    found = runs()
    found.take(began())
    assert found.take(ended(run="44444444-4444-4444-8444-444444444444")) == []


def test_an_end_that_comes_after_the_next_start_is_told() -> None:
    found = runs()
    found.take(began())
    found.take(committed())
    assert states(found.take(began(run="next"))) == [State.START]
    (end,) = found.take(ended("why"))
    assert (end.state, end.run_id, end.error, end.outputs[0].records) == (State.FAIL, RUN, "why", 10)
    assert found.take(ended()) == []
    assert [(one.state, one.run_id) for one in found.take(ended(run="next"))] == [(State.COMPLETE, "next")]


def test_a_query_that_is_told_twice_starts_once_and_keeps_what_it_wrote() -> None:
    found = runs()
    found.take(began())
    found.take(committed())
    assert found.take(began()) == []
    (end,) = found.take(ended())
    assert end.outputs[0].records == 10


def test_the_dead_letter_topic_is_an_output_without_fields() -> None:
    found = runs()
    (start,) = found.take(WriteBegan(JOB, 0, 90.0, Destination(("broker-1:9092",), "events", "letters", FIELDS)))
    assert [(one.topic, one.fields) for one in start.outputs] == [("events", FIELDS), ("letters", ())]


def test_a_query_of_another_session_starts_with_its_first_commit() -> None:
    found = runs()
    changes = found.take(committed())

    assert states(changes) == [State.START, State.RUNNING]
    assert {one.run_id for one in changes} == {QUERY}
    assert [(one.state, one.run_id) for one in found.take(ended())] == [(State.COMPLETE, QUERY)]


def test_new_topics_in_each_batch_give_no_more_events_and_few_outputs() -> None:
    clock, where = Clock(), Destination(("broker-1:9092",), None, None, FIELDS)
    found, changes = runs(clock), []
    for batch in range(300):
        clock.now += 1
        changes += found.take(committed(batch=batch, where=where, topic=f"topic-{batch}"))
    changes += found.take(committed(batch=300, where=where, topic="topic-299"))
    assert states(changes) == [State.START, *[State.RUNNING] * 5]
    (end,) = found.take(ended(run=QUERY))
    assert len(end.outputs) == MOST_OUTPUTS
    assert (end.outputs[0].topic, end.outputs[0].records) == ("topic-299", 20)


def test_runs_whose_ends_never_come_are_forgotten_one_day() -> None:
    found = runs()
    for number in range(MOST_RUNS + 2):
        found.take(began(run=f"run-{number}"))
    assert found.take(ended(run="run-0")) == []
    assert states(found.take(ended(run="run-1"))) == [State.COMPLETE]
    assert states(found.take(ended(run=f"run-{MOST_RUNS + 1}"))) == [State.COMPLETE]
