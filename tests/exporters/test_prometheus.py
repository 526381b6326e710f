"""Prometheus' own client parses what is served."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_sink.errors import InstallationError, UsageError
from spark_kafka_sink.exporters import prometheus
from spark_kafka_sink.exporters.prometheus import DriverCollector, PrometheusServer, serve_prometheus
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.write_events import WriteFailed
from tests.every import every
from tests.exporters.reports import batch, of_topics
from tests.exporters.scrapes import Samples, named, parsed, scraped
from tests.limits import calls_of
from tests.spark.counting import counting
from tests.waiting import DEADLINE_S, HOUR_S, wait_until

CALLS = 100_000
"""What may be called for 10,000 topics: 20 ms. It was 80 times as much when each partition had a line."""
QUERY = named("q", "q")
"""A query without a name."""


def collected(metrics: DeliveryMetrics, most_partitions: int = 200) -> Samples:
    registry = CollectorRegistry()
    registry.register(DriverCollector(metrics, most_partitions))
    return parsed(generate_latest(registry).decode())


def test_a_scrape_has_what_was_committed(metrics: DeliveryMetrics) -> None:
    server = serve_prometheus(metrics, 0)
    try:
        metrics.batch_committed(batch())
        found = scraped(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.stop()
    expected: Samples = {
        ("kafka_sink_records_total", (("partition", "1"), ("topic", "t"))): 10,
        ("kafka_sink_uncompressed_bytes_total", (("partition", "0"), ("topic", "t"))): 200,
        ("kafka_sink_compressed_bytes_total", ()): 50,
        ("kafka_sink_record_batches_total", ()): 3,
        ("kafka_sink_produce_requests_total", ()): 2,
        ("kafka_sink_retries_total", ()): 1,
        ("kafka_sink_errors_total", (("error", "NOT_LEADER_OR_FOLLOWER"),)): 4,
        ("kafka_sink_bad_rows_total", (("reason", "header"),)): 2,
        ("kafka_sink_dead_letters_total", ()): 2,
        ("kafka_sink_throttled_seconds_total", ()): 1.5,
        ("kafka_sink_commit_seconds_total", ()): 0.25,
        ("kafka_sink_transactions_total", (("outcome", "committed"),)): 6,
        ("kafka_sink_transactions_total", (("outcome", "aborted"),)): 1,
        ("kafka_sink_batches_total", QUERY): 1,
        ("kafka_sink_query_records_total", QUERY): 20,
        ("kafka_sink_last_batch_timestamp_seconds", QUERY): 1_700_000_002.5,
        ("kafka_sink_last_batch_duration_seconds", QUERY): 2.5,
        ("kafka_sink_running_tasks", ()): 0,
        ("kafka_sink_ack_latency_seconds_bucket", (("le", "0.001"), ("topic", "t"))): 1,
        ("kafka_sink_ack_latency_seconds_bucket", (("le", "0.004"), ("topic", "t"))): 1,
        ("kafka_sink_ack_latency_seconds_bucket", (("le", "0.008"), ("topic", "t"))): 99,
        ("kafka_sink_ack_latency_seconds_bucket", (("le", "+Inf"), ("topic", "t"))): 100,
    }
    assert {key: found.get(key) for key in expected} == expected


def test_failed_writes_are_counted_by_query_and_batch_jobs_are_one(metrics: DeliveryMetrics) -> None:
    for query, is_interrupt in (("q", False), ("q", False), ("job-1", False), ("job-2", False), ("", False), ("q", True)):
        metrics.feed.tell(WriteFailed(query, 0, 1.0, "why", is_interrupt))
    found = {labels: value for (name, labels), value in collected(metrics).items() if name == "kafka_sink_failed_writes_total"}
    assert found == {QUERY: 2, named("batch-jobs", "batch-jobs"): 2, named("unknown", "unknown"): 1}


def test_a_query_keeps_the_label_that_it_had_first(metrics: DeliveryMetrics) -> None:
    def labels() -> list[tuple[tuple[str, str], ...]]:
        return [labels for name, labels in collected(metrics) if name == "kafka_sink_batches_total"]

    metrics.batch_committed(batch())
    assert labels() == [QUERY]
    metrics.of(cast("StreamingQuery", SimpleNamespace(id="q", name="clicks")))
    assert metrics.query_name("q") == "clicks"
    assert labels() == [QUERY]
    metrics.of(cast("StreamingQuery", SimpleNamespace(id="named", name="orders")))
    metrics.batch_committed(batch("named"))
    assert named("named", "orders") in labels()
    metrics.of(cast("StreamingQuery", SimpleNamespace(id="named", name="")))
    assert named("named", "orders") in labels()


class _Broken:
    @property
    def _jsparkSession(self) -> None:
        raise RuntimeError("the JVM is gone")


def test_a_query_that_has_ended_is_0_and_one_that_is_not_known_has_no_value(
    metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics.batch_committed(batch())
    metrics.batch_committed(batch("job-1"))
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    found = {labels: value for (name, labels), value in collected(metrics).items() if name == "kafka_sink_query_active"}
    assert found == {QUERY: 0}
    monkeypatch.setattr(SparkSession, "_instantiatedSession", _Broken())
    assert not [name for name, _ in collected(metrics) if name == "kafka_sink_query_active"]


class _Active:
    """As much of a session as the ids and the name of its queries need."""

    def __init__(self) -> None:
        self.ids = ""

    def __getattr__(self, name: str) -> _Active:
        return self

    def __call__(self, *arguments: object) -> _Active:
        return self

    def toString(self) -> str:
        return self.ids

    def __str__(self) -> str:
        return "clicks"  # the name of each of them


def test_a_query_is_active_from_its_first_tasks_on_before_it_commits(
    metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def active() -> Samples:
        return {key: value for key, value in collected(metrics).items() if key[0] == "kafka_sink_query_active"}

    session, query = _Active(), "5e0fb6f6-0c2c-4a4b-9f0e-7d7c4e1f8a11"
    other, job = query.replace("5", "6"), "job-" + query
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    session.ids = f"[{query}, {other}]"
    assert active() == {}
    key = "kafka_sink_query_active", named(query, "clicks")
    for is_running in (True, False):
        for number, call in enumerate((query, job)):
            metrics.live_tasks.take(json.dumps([str(number), call, is_running, None, 5, 50, 0]).encode())
        assert active() == {key: 1}
    session.ids = "[]"
    assert active() == {key: 0}


def test_before_anything_is_reported_the_counts_are_0(metrics: DeliveryMetrics) -> None:
    found = collected(metrics)
    assert found["kafka_sink_retries_total", ()] == 0
    assert not any(name.startswith("kafka_sink_records") for name, _ in found)


def test_names_follow_prometheus_conventions(metrics: DeliveryMetrics) -> None:
    metrics.batch_committed(batch())
    for name, _ in collected(metrics):
        assert name.startswith("kafka_sink_")
        assert not name.endswith(("_ms", "_total_total", "_count_total"))


def test_more_partitions_than_the_limit_become_sums_of_their_topics(metrics: DeliveryMetrics) -> None:
    metrics.batch_committed(batch(partitions=201))
    found = collected(metrics)
    of_records = {labels: value for (name, labels), value in found.items() if name == "kafka_sink_records_total"}
    assert of_records == {(("partition", "all"), ("topic", "t")): 2010}
    assert len([1 for name, _ in collected(metrics, 300) if name == "kafka_sink_records_total"]) == 201


def test_a_second_exporter_of_a_driver_has_the_same_sums(metrics: DeliveryMetrics) -> None:
    def of_others() -> tuple[float, float]:
        found = collected(metrics, 20)
        acks = found["kafka_sink_ack_latency_seconds_bucket", (("le", "+Inf"), ("topic", "other"))]
        return found["kafka_sink_records_total", (("partition", "all"), ("topic", "other"))], acks

    metrics.batch_committed(of_topics(30))
    records, acks = of_others()
    top = {("tenant-0", 0): PartitionReport(1_000_000, 100, 0, 1)}  # now the largest topic
    latencies = {"tenant-0": [1_000_000, *[0] * (LATENCY_BUCKETS - 1)]}
    report = DeliveryReport(partitions=PartitionReports(top), ack_latency=latencies)
    metrics.batch_committed(BatchReport("q", 4, 1_700_000_000.0, 2.5, report))
    assert of_others() == (records + 1_000_000, acks + 1_000_000)


def test_a_scrape_of_10_000_topics_is_cheap_and_has_as_many_lines_as_one_of_200(metrics: DeliveryMetrics) -> None:
    registry = CollectorRegistry()
    registry.register(DriverCollector(metrics))
    for _ in range(5):
        metrics.batch_committed(of_topics(10_000))
        assert calls_of(lambda: generate_latest(registry)) <= CALLS
    page = generate_latest(registry)
    assert page.count(b"\n") < 1200
    found = parsed(page.decode())
    of_records = {dict(labels)["topic"]: value for (name, labels), value in found.items() if name == "kafka_sink_records_total"}
    assert len(of_records) == 200
    assert of_records["tenant-9999"] == 50_000
    assert sum(of_records.values()) == 5 * sum(range(10_001))
    counts = {dict(labels)["topic"]: value for (name, labels), value in found.items() if ("le", "+Inf") in labels}
    assert len(counts) == 20
    assert sum(counts.values()) == 5 * sum(range(10_001))


def test_a_port_that_is_taken_is_one_warning(metrics: DeliveryMetrics, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = serve_prometheus(metrics, port)
        assert server.port is None
        server.stop()
    assert f"metrics are not served to Prometheus: cannot listen on 127.0.0.1:{port}" in caplog.text
    assert len(caplog.records) == 1


def test_a_second_call_with_the_same_port_serves_the_new_handle(metrics: DeliveryMetrics) -> None:
    first = serve_prometheus(metrics, 0)
    assert first.port is not None
    metrics.batch_committed(batch())
    metrics.close()
    new = counting()
    second = serve_prometheus(new, first.port)
    try:
        assert second.port == first.port
        first.stop()  # it is stopped already, and leaves the second one alone
        found = scraped(f"http://127.0.0.1:{second.port}/metrics")
        assert found["kafka_sink_record_batches_total", ()] == 0
    finally:
        second.stop()
        new.close()


@pytest.mark.parametrize("port", [-1, 65_536, 70_000, "9404", 9404.0, True, None])
def test_a_port_that_cannot_be_one_is_a_clear_error(metrics: DeliveryMetrics, port: object) -> None:
    with pytest.raises(UsageError, match="port must be an integer from 0 to 65535, and it is"):
        serve_prometheus(metrics, port)  # type: ignore[arg-type]


def test_on_spark_connect_nothing_is_served_after_one_warning(
    uncounted: DeliveryMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve_prometheus(uncounted, 0)
    assert server.port is None
    server.stop()
    (warning,) = caplog.records
    assert "nothing is exported to Prometheus: Spark Connect has no accumulators" in warning.message


def test_a_collector_on_spark_connect_leaves_the_programs_other_metrics_alone(
    uncounted: DeliveryMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    Gauge("other", "of the program", registry=registry).set(7)
    registry.register(DriverCollector(uncounted))
    for _ in range(2):
        assert parsed(generate_latest(registry).decode()) == {("other", ()): 7}
    assert len(caplog.records) == 1


@pytest.fixture
def server(metrics: DeliveryMetrics) -> Iterator[PrometheusServer]:
    made = serve_prometheus(metrics, 0)
    yield made
    made.stop()


@every(
    "host, status",
    [
        *(("127.0.0.1:{}", 200), ("localhost:{}", 200), ("[::1]:{}", 200), ("localhost", 200), ("", 200)),
        *(("evil.example:{}", 421), ("127.0.0.1.evil.example", 421), ("evil.example@127.0.0.1.x", 421), ("[", 421)),
    ],
)
def test_a_name_that_another_site_gave_this_machine_is_not_answered(server: PrometheusServer, host: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={"Host": host.format(server.port)})
        answer = connection.getresponse()
        assert (answer.status, b"kafka_sink_" in answer.read()) == (status, status == 200)


def idle(server: PrometheusServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port or 0), timeout=DEADLINE_S)


def test_idle_connections_take_a_limited_number_of_threads(server: PrometheusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PEER_S", HOUR_S)

    def is_served() -> bool:
        try:
            return bool(scraped(f"http://127.0.0.1:{server.port}/metrics"))
        except OSError:
            return False

    with contextlib.ExitStack() as opened:
        for _ in range(prometheus.MOST_PEERS):
            opened.enter_context(idle(server))
        with idle(server) as one_more:
            assert one_more.recv(1) == b""
    wait_until(is_served, "nothing is served when the idle ones have gone")


def test_an_idle_connection_is_closed(server: PrometheusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PEER_S", 0.1)
    with idle(server) as silent:
        assert silent.recv(1) == b""


def test_stop_closes_the_port_and_may_be_called_twice(metrics: DeliveryMetrics) -> None:
    server = serve_prometheus(metrics, 0)
    server.stop()
    server.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5)


def test_without_the_library_the_error_names_the_extra(metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InstallationError, match=r"serve_prometheus\(\) needs prometheus-client.*spark-kafka-sink\[prometheus\]"):
        serve_prometheus(metrics, 0)
