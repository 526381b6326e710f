"""What the two witnesses, a confluent-kafka consumer and Kafka's own log tool, say of a topic."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

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


def test_an_unknown_topic_is_an_error(kafka: Kafka) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        read_topic(kafka.bootstrap_servers, "nobody-made-this")


def test_only_the_partitions_asked_for_are_read(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, sender = new_topic(3), producer(kafka)
    for partition in range(3):
        sender.produce(topic, str(partition).encode(), partition=partition)
    assert sender.flush(30) == 0
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic, partitions=[1])] == [b"1"]


@pytest.mark.whole("a tool of the tests, and a time-out")
def test_reading_that_gets_nowhere_ends_at_its_deadline(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(on=proxied_kafka.cluster)
    sender = producer(proxied_kafka.cluster)
    sender.produce(topic, b"v" * 100_000)
    assert sender.flush(30) == 0
    proxied_kafka.proxy.rate_limit(20_000, "to_client")
    with pytest.raises(TimeoutError, match=topic):
        read_topic(proxied_kafka.cluster.bootstrap_servers, topic, deadline_s=0.5)


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


@pytest.mark.whole(
    "a tool of the tests, and a start of Java; test_a_dump_tells_batches_with_their_producer_and_sequences has another dump"
)
def test_a_dump_keeps_values_that_look_like_its_own_output(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    cluster = proxied_kafka.cluster
    values = ["a\n| offset: 9 CreateTime: 1", "é payload: \n\n", "", None, "] key: "]
    topic, sender = new_topic(on=cluster), producer(cluster)
    for value in values:
        sender.produce(topic, value, "k", headers=[("h", b""), ("a b", b"")])
    assert sender.flush(30) == 0
    dumped = records_of(dump_log(cluster, 1, topic))
    assert [record.value for record in dumped] == [None if value is None else value.encode() for value in values]


@pytest.mark.whole(
    "a tool of the tests, and a start of Java; test_a_dump_tells_batches_with_their_producer_and_sequences has another dump"
)
def test_a_dump_counts_control_batches_apart(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    cluster = proxied_kafka.cluster
    topic = new_topic(on=cluster)
    sender = producer(cluster, **{"transactional.id": topic})
    sender.init_transactions(30)
    sender.begin_transaction()
    sender.produce(topic, "v")
    sender.commit_transaction(30)
    # A commit is answered when it is certain; markers are written after that.
    cluster.wait_for(lambda: len(dump_log(cluster, 1, topic)) == 2, "the marker", 20)
    batches = dump_log(cluster, 1, topic)
    assert [(batch.control, batch.transactional) for batch in batches] == [(False, True), (True, True)]
    assert [record.value for record in records_of(batches)] == [b"v"]


def test_a_line_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="something new"):
        list(parse(b"Dumping x\nsomething new\n"))
