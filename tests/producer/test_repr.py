"""The repr of producers, scopes, futures and reports: one readable line without secrets."""

from __future__ import annotations

from spark_kafka_sink.errors import BrokerError, RecordError
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.single_records.record_future import RecordThunk
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from tests.producer.parts import make_parts
from tests.producer.told import future


def test_a_producer_shows_where_it_sends_and_whether_it_is_open_but_no_secret() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "hunter2"}
    producer = Producer({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", "client.id": "etl", **login})
    shown = "<Producer client.id='etl' bootstrap.servers='127.0.0.1:1,127.0.0.1:2', {}>"
    assert repr(producer) == shown.format("open")
    producer.close()
    assert repr(producer) == shown.format("closed")


def test_a_transactional_producer_shows_its_id_and_few_of_many_servers() -> None:
    servers = ",".join(f"127.0.0.1:{port}" for port in range(1, 9))
    with Producer({"bootstrap.servers": servers, "transactional.id": "its-own"}) as producer:
        assert repr(producer) == (
            "<Producer client.id='spark-kafka-sink' bootstrap.servers='127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,...'"
            " transactional.id='its-own', open>"
        )


def test_a_future_shows_how_far_its_record_has_come() -> None:
    acked, failed, unsent = future(), future(), future()
    assert repr(acked) == "<RecordFuture topic='t', waiting for a batch>"
    result = ProduceResult("t", 3)
    result.attach(RecordThunk([acked], callbacks=True), 0)
    assert repr(acked) == "<RecordFuture topic='t' partition=3, in a batch>"
    result.acked(7, -1)
    assert repr(acked) == "<RecordFuture topic='t' partition=3 offset=7, acknowledged>"
    other = ProduceResult("t", 2)
    other.attach(RecordThunk([failed], callbacks=True), 0)
    other.failed(BrokerError("the broker\nrejected it"))
    assert repr(failed) == "<RecordFuture topic='t' partition=2, failed with [BROKER]>"
    unsent.fail(RecordError("no such partition"))
    assert repr(unsent) == "<RecordFuture topic='t', failed with [RECORD]>"


def test_a_scope_shows_its_counts_and_state() -> None:
    parts = make_parts(enable_idempotence="false")
    scope = parts.scope()
    assert repr(scope) == "<SendScope 0 records acknowledged, 0 failed, 0 batches unfinished, open>"
    parts.append(scope.tally, [b"x"], [0])
    assert repr(scope) == "<SendScope 0 records acknowledged, 0 failed, 1 batch unfinished, open>"
    scope.discard()
    assert repr(scope) == "<SendScope 0 records acknowledged, 0 failed, discarded>"


def test_a_delivery_report_shows_its_counts_and_only_what_happened() -> None:
    partitions = PartitionReports({("t", 0): PartitionReport(1000, 9000, 0, 999)})
    report = DeliveryReport(1000, 9000, 2500, 2, requests=1, retries=1, partitions=partitions, ack_latency={"t": [0] * 24})
    counts = "1,000 records, 9,000 bytes (2,500 sent), 2 batches in 1 request, 1 retry, 1 topic-partition"
    assert repr(report) == f"<DeliveryReport {counts}>"
    report.errors = {"NOT_LEADER_OR_FOLLOWER": 2, "DISCONNECTED": 1}
    report.commits, report.transactions_committed = 1, 3
    assert repr(report) == (
        f"<DeliveryReport {counts}; 3 transactions committed, 0 aborted in 1 commit of 0 ms on average;"
        " errors: DISCONNECTED 1, NOT_LEADER_OR_FOLLOWER 2>"
    )


def test_partition_reports_show_the_first_of_many() -> None:
    assert repr(PartitionReports()) == "<PartitionReports empty>"
    reports = PartitionReports({("t", number): PartitionReport(1000, 1, 0, 999) for number in range(1010)})
    assert repr(reports).startswith("<PartitionReports t-0: 1,000 records, t-1: 1,000 records, ")
    assert repr(reports).endswith(", t-7: 1,000 records, and 1,002 more>")
