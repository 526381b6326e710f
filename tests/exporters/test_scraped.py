"""What is read from a page that the driver really serves, and from pages that it does not."""

from __future__ import annotations

import socket
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.exporters.metric_families import FAMILIES
from spark_kafka_sink.exporters.prometheus import prometheus_name, serve_prometheus
from spark_kafka_sink.exporters.scraped import ACK, ACTIVE, FAILED, FIELDS, NotOursError, is_web_address, read_page, reading
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.driver.views.watch import NoAnswerError
from spark_kafka_sink.spark.write_events import WriteFailed
from tests.exporters.reports import batch
from tests.security.sasl.http_servers import Answer, http_server


def test_a_page_has_the_totals_of_the_driver(metrics: DeliveryMetrics) -> None:
    server = serve_prometheus(metrics, 0)
    before = int(time.time())  # a page has whole seconds
    try:
        metrics.batch_committed(batch("q"))
        metrics.batch_committed(batch('with "quotes"\n'))
        metrics.writes.tell(WriteFailed("q", 1, 1.0, "why"))
        found = read_page(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.stop()
    assert found.totals == metrics.totals()
    assert (found.states, found.failed) == ({}, {"q": 1})  # without a session no query runs
    assert before <= found.now_s <= time.time()


def test_before_the_first_commit_there_are_no_queries(metrics: DeliveryMetrics) -> None:
    server = serve_prometheus(metrics, 0)
    try:
        assert read_page(f"http://127.0.0.1:{server.port}/metrics").totals == {}
    finally:
        server.stop()


def test_every_metric_that_is_read_is_exported() -> None:
    assert {*FIELDS, ACK, ACTIVE, FAILED} <= {prometheus_name(family) for family in FAMILIES}


def test_the_queries_that_run_are_known_if_the_driver_knows_them() -> None:
    lines = 'kafka_sink_batches_total{{query="{0}"}} 1\n' + 'kafka_sink_query_active{{query="{0}"}} {1}\n'
    assert reading(lines.format("a", 1) + lines.format("b", 0), "page", 0.0).states == {"a": "running"}
    assert reading('kafka_sink_batches_total{query="a"} 1\n', "page", 0.0).states is None


def test_a_port_where_nothing_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NoAnswerError, match=rf"http://127.0.0.1:{port}/metrics does not answer: Connection refused"):
        read_page(f"http://127.0.0.1:{port}/metrics?token=secret")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html><body>It works!</body></html>", "is not a page of Prometheus metrics"),
        (b"\xff\xfe\x00", "is not a page of Prometheus metrics"),
        (b"process_cpu_seconds_total 5\n", "has no metrics of this sink"),
        (b"", "has no metrics of this sink"),
        (b'kafka_sink_batches_total{query="q"} many\n', "is not a page of Prometheus metrics"),
        (b'kafka_sink_batches_total{query="q"} NaN\n', "is not a page of Prometheus metrics"),
    ],
)
def test_another_programs_page_is_an_error_that_names_the_address(body: bytes, reason: str) -> None:
    with http_server(Answer(body=body)) as server, pytest.raises(NotOursError, match=reason) as caught:
        read_page(server.url)
    assert server.url in str(caught.value)
    assert "serve_prometheus(metrics)" in str(caught.value)


def test_a_status_that_is_not_200_is_an_error() -> None:
    with http_server(Answer(404, b"not here")) as server, pytest.raises(NotOursError, match="answers with HTTP status 404"):
        read_page(server.url)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        reading("kafka_sink_retries_total 0\n" + text, "page", 0.0)
    except NotOursError:
        pass


@pytest.mark.parametrize(
    "url", ["", "metrics", "127.0.0.1:9404", "file:///etc/passwd", "ftp://h/x", "http://", "http:/h", "http://u:p@h/metrics"]
)
def test_only_addresses_of_the_web_are_read(url: str) -> None:
    assert not is_web_address(url)
    assert is_web_address("http://h:9404/metrics")
    assert is_web_address("HTTPS://h")


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InstallationError, match=r"watch needs prometheus-client.*spark-kafka-sink\[prometheus\]"):
        read_page("http://127.0.0.1:1/metrics")


def test_what_a_foreign_page_says_moves_no_cursor() -> None:
    for text in ("\x1b[2Jx y z w\n", 'kafka_sink_batches_total{query="a"} \x1b]0;own\x07\n'):
        with pytest.raises(NotOursError) as caught:
            reading(text, "the page", 0.0)
        assert str(caught.value).isprintable()
