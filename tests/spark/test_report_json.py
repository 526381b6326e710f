from __future__ import annotations

import pytest
from hypothesis import given

from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.report_json import report_from_json, report_to_json
from tests.spark.reports import reports


@given(reports)
def test_a_report_comes_back_as_it_was(report: DeliveryReport) -> None:
    assert report_from_json(report_to_json(report)) == report


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"records": 1}', '{"partitions": 5}', b"\xff"])
def test_other_text_is_refused(text: str | bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_json(text)
