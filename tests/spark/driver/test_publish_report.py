"""The report of publish(), without a Spark session."""

from __future__ import annotations

import pickle

import spark_kafka_sink as sks
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from tests.producer.reports import eventful


def of_tasks(*records: int, seconds: float = 2.0) -> sks.PublishReport:
    """Returns the report of tasks with these records, each in the partition with the task's number."""
    tasks, total = [], sks.DeliveryReport()
    for number, count in enumerate(records):
        part = PartitionReports({("t", number): PartitionReport(count, 10 * count, 0, count - 1)})
        tasks.append(sks.TaskReport(number, sks.DeliveryReport(count, 10 * count, partitions=part)))
        total.add(tasks[-1].report)
    return sks.PublishReport(total, tuple(tasks), seconds)


def test_its_text_has_the_rate_and_the_smallest_and_the_largest_task() -> None:
    assert repr(of_tasks(3, 1, 2)).splitlines()[:3] == [
        "records     6",
        "time        2.0 s (3 rows/s)",
        "tasks       3 (1 to 3 records each)",
    ]
    assert repr(of_tasks(5)).splitlines()[2] == "tasks       1"
    assert repr(of_tasks(seconds=0.0)).splitlines()[1:3] == ["time        0.0 s (0 rows/s)", "tasks       0"]
    assert str(of_tasks(3)) == repr(of_tasks(3))


def test_a_throughput_is_drawn_if_there_is_one() -> None:
    without = of_tasks(6)
    report = sks.PublishReport(without.total, without.tasks, 2.0, throughput=((0.5, 2.0), (1.5, 4.0)))
    assert "Throughput up to 4 rows/s in 1.5 s" in repr(report)
    assert "<title>Throughput up to 4 rows/s in 1.5 s</title>" in report._repr_html_()
    assert without.throughput == ()
    assert "Throughput" not in repr(without) + without._repr_html_()


def test_its_tables_have_a_row_for_each_task_and_partition() -> None:
    report = of_tasks(3, 1)
    assert report.to_arrow().column_names[:2] == ["spark_partition", "topic"]
    assert [row["records"] for row in report.to_arrow().to_pylist()] == [3, 1]
    frame = report.to_pandas()
    assert str(frame.dtypes["spark_partition"]) == "Int32"
    assert frame["records"].sum() == report.total.records


def test_it_pickles_also_after_it_was_shown() -> None:
    report = sks.PublishReport(eventful(), (sks.TaskReport(0, eventful()),), 1.0, ((1.0, 2.0),))
    shown = repr(report), report._repr_html_(), report.to_arrow()
    copy = pickle.loads(pickle.dumps(report))
    assert copy == report
    assert (repr(copy), copy._repr_html_(), copy.to_arrow()) == shown
