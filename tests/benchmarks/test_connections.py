"""Every busy connection is answered while the idle ones are open."""

from __future__ import annotations

from benchmarks.connections import BUSY, answers_by_connection
from benchmarks.environment import embedded_broker
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.records.decoder import decode_batches


def test_requests_are_counted_by_connection_and_stored() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 8)

        answers, seconds = answers_by_connection(broker.bootstrap_servers, "t", 8, 1000)

        assert len(answers) == BUSY
        assert 1000 <= sum(answers) < 1000 + BUSY  # those that come with the last one count
        assert min(answers) > 0
        assert seconds > 0


def test_the_process_it_measures_takes_records() -> None:
    with embedded_broker() as embedded:
        embedded.kafka.create_topic("t")
        answers_by_connection(embedded.kafka.bootstrap_servers, "t", 1, 100)
        (log,) = (embedded.folder / "t-0").glob("*.log")
        assert sum(batch.record_count for batch in decode_batches(log.read_bytes(), cut_off=True)) >= 100
        assert embedded.rss() > 0
    assert not embedded.folder.exists()
