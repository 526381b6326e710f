"""Reports as tables of Arrow and pandas."""

from __future__ import annotations

import sys

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET, PartitionReport, PartitionReports
from spark_kafka_sink.reports.report_tables import task_table
from tests.examples import examples
from tests.limits import calls_of
from tests.producer.reports import many_partitions
from tests.spark.reports import reports

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
    ]
)


def test_a_report_of_nothing_is_a_table_without_rows() -> None:
    assert DeliveryReport().to_arrow().schema == SCHEMA
    assert DeliveryReport().to_arrow().num_rows == len(DeliveryReport().to_pandas()) == 0
    assert task_table([]).num_rows == 0


@settings(max_examples=examples(100))
@given(reports)
def test_an_arrow_table_has_a_row_for_each_topic_partition_and_nulls_for_what_is_unknown(report: DeliveryReport) -> None:
    table = report.to_arrow()
    table.validate(full=True)
    assert table.schema == SCHEMA
    assert table.to_pylist() == [
        {
            "topic": topic.encode(errors="backslashreplace").decode(),
            "partition": None if partition == ALL_PARTITIONS else partition,
            "records": one.records,
            "bytes": one.bytes,
            "first_offset": None if one.first_offset == NO_OFFSET else one.first_offset,
            "last_offset": None if one.last_offset == NO_OFFSET else one.last_offset,
        }
        for (topic, partition), one in sorted(report.partitions.items())
    ]


def test_a_pandas_frame_keeps_integers_exact_where_others_are_null() -> None:
    offset = 2**60 + 1
    report = DeliveryReport(
        partitions=PartitionReports({("a", 0): PartitionReport(1, 2, offset, offset), ("b", -1): PartitionReport()})
    )
    frame = report.to_pandas()
    assert dict(frame.dtypes.astype(str)) == {
        "topic": "object",
        "partition": "Int32",
        **dict.fromkeys(["records", "bytes", "first_offset", "last_offset"], "Int64"),
    }
    assert frame["first_offset"][0] == offset
    assert frame["partition"][1] is frame["last_offset"][1] is pd.NA


def test_without_pandas_there_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InstallationError) as caught:
        DeliveryReport().to_pandas()
    told = "needs pandas, and pandas is not installed: pip install 'spark-kafka-sink[spark]'"
    assert caught.value.message == f"DeliveryReport.to_pandas() {told}"


def test_a_table_of_tasks_begins_with_the_spark_partition() -> None:
    tasks = [
        (0, PartitionReports({("b", 1): PartitionReport(1, 10, 0, 0), ("a", 0): PartitionReport(2, 20, 0, 1)})),
        (1, PartitionReports()),
        (2, PartitionReports({("c", -1): PartitionReport(3, 30), ("a", 0): PartitionReport(4, 40, 2, 5)})),
    ]
    table = task_table(tasks)
    table.validate(full=True)
    assert table.schema == pa.schema([pa.field("spark_partition", pa.int32(), nullable=False), *SCHEMA])
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, "a", 0, 2, 20, 0, 1),
        (0, "b", 1, 1, 10, 0, 0),
        (2, "a", 0, 4, 40, 2, 5),
        (2, "c", None, 3, 30, None, None),
    ]
    assert tasks[2][1]["c", -1].records == 3


def test_50_000_rows_are_made_without_objects_for_each() -> None:
    report = many_partitions(50_000, 10)
    table = report.to_arrow()
    assert table.num_rows == 50_000
    assert sum(table["records"].to_pylist()) == report.records
    assert calls_of(report.to_arrow) < 50_000
