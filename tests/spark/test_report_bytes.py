from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given

from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.report_bytes import report_from_bytes, report_to_bytes
from tests.spark.reports import reports

# Of a topic that is not named.
_LINE = b'[["t"],1,0,[1,0,0,0,0,0],[0,0,0,0,0,0]]'
GAP = zlib.compress(len(_LINE).to_bytes(4, "big") + _LINE)


@given(reports)
def test_a_report_comes_back_as_it_was(report: DeliveryReport) -> None:
    assert report_from_bytes(report_to_bytes(report)) == report


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"null", b'{"records": 1}', b'{"partitions": 5}', b"\xff"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_bytes(text)


@pytest.mark.parametrize("partitions", [b"\n", b"\xff", zlib.compress(b""), zlib.compress(b"\0\0\0\x09[[],1]xxxx"), GAP])
def test_partitions_that_nobody_packed_are_refused(partitions: bytes) -> None:
    nothing = report_to_bytes(DeliveryReport())
    assert report_from_bytes(nothing) == DeliveryReport()
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_bytes(nothing + partitions)


@pytest.mark.parametrize(
    "latencies", [b"", b"\xff", zlib.compress(b""), zlib.compress(b"[]\n12345678"), zlib.compress(b'["t"]\n' + bytes(8))]
)
def test_latencies_that_nobody_packed_are_refused(latencies: bytes) -> None:
    line, _, _ = report_to_bytes(DeliveryReport()).partition(b"\n")
    values = json.loads(line) | {"latencies": len(latencies)}
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_bytes(json.dumps(values).encode() + b"\n" + latencies)
