"""What the two witnesses, a confluent-kafka consumer and Kafka's own log tool, say of a topic."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.kafka.dump_log import dump_log, parse, records_of
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic


def producer(kafka: Kafka, **settings: str) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, **settings})


def test_every_field_of_a_record_is_witnessed(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, sender = new_topic(3), producer(kafka)
    sender.produce(topic, b"v\xff", b"k", partition=2, timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)])
    sender.produce(topic, None, None, partition=0, timestamp=5)
    sender.produce(topic, b"", b"", partition=0, timestamp=6)
    assert sender.flush(30) == 0
    assert read_topic(kafka.bootstrap_servers, topic) == [
        Witnessed(0, 0, None, None, (), 5),
        Witnessed(0, 1, b"", b"", (), 6),
        Witnessed(2, 0, b"k", b"v\xff", (("h", b"1"), ("h", None)), 1_700_000_000_123),
    ]


def test_aborted_records_are_seen_unless_committed_ones_are_asked_for(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    sender = producer(kafka, **{"transactional.id": topic})
    sender.init_transactions(30)
    for value, end in ((b"aborted", sender.abort_transaction), (b"committed", sender.commit_transaction)):
        sender.begin_transaction()
        sender.produce(topic, value)
        sender.flush(30)
        end(30)
    # A commit is answered when it is certain; the marker that lets a consumer read on is written after that.
    kafka.wait_for(
        lambda: len(read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")) == 1, "the marker", 20
    )
    seen = {level: [r.value for r in read_topic(kafka.bootstrap_servers, topic, isolation_level=level)] for level in LEVELS}
    assert seen == {"read_uncommitted": [b"aborted", b"committed"], "read_committed": [b"committed"]}


LEVELS = ("read_uncommitted", "read_committed")


def test_a_dump_tells_batches_with_their_producer_and_sequences(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    cluster = proxied_kafka.cluster
    topic, sender = new_topic(on=cluster), producer(cluster, **{"enable.idempotence": "true", "compression.type": "zstd"})
    for text in ("one", "two"):
        sender.produce(topic, text * 100, text)  # of now: the broker deletes a segment whose records are a week old
        assert sender.flush(30) == 0
    first, second = dump_log(cluster, 1, topic)
    assert (first.base_offset, first.base_sequence, first.count, first.codec, first.valid) == (0, 0, 1, "zstd", True)
    assert (second.base_offset, second.base_sequence, second.last_sequence) == (1, 1, 1)
    assert first.producer_id == second.producer_id >= 0
    assert [(r.offset, r.key, r.value) for r in records_of([first, second])] == [
        (0, b"one", b"one" * 100),
        (1, b"two", b"two" * 100),
    ]


def test_a_line_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="something new"):
        list(parse(b"Dumping x\nsomething new\n"))
