"""ProducerMetadata: topics while they are used, and waiting for one with an end and a reason."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.errors import BrokerError, MetadataTimeoutError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKER = "broker 1 (one:9092)"
BACKOFF, MAX_IDLE = 100, 5000
START = monotonic_ms()  # as the code under test reads it: a fixed number is in the future of a machine that has just started


@pytest.fixture
def metadata() -> ProducerMetadata:
    options = {"retry.backoff.ms": BACKOFF, "retry.backoff.max.ms": BACKOFF, "metadata.max.idle.ms": MAX_IDLE}
    return ProducerMetadata(producer_config({"bootstrap.servers": "a:1,b:2", **options}))


def soon() -> float:
    return time.monotonic() + 30


def no_wakeup() -> None:
    pass


def topic(name: str, partitions: int = 1, error: int = 0) -> MetadataResponseTopic:
    parts = [MetadataResponsePartition(error_code=0, partition_index=p, leader_id=1, leader_epoch=0) for p in range(partitions)]
    return MetadataResponseTopic(error_code=error, name=name, topic_id=uuid.UUID(int=1), partitions=[] if error else parts)


def asked(metadata: ProducerMetadata, now_ms: int = START) -> tuple[list[str | None], bool]:
    """The topics of the next request, and whether it is partial."""
    request = metadata.next_request(now_ms)
    topics = request.body(12).topics
    assert topics is not None
    return [t.name for t in topics], request.partial


def answer(metadata: ProducerMetadata, *topics: MetadataResponseTopic, now_ms: int = START) -> None:
    request = metadata.next_request(now_ms)
    request.body(12)
    broker = MetadataResponseBroker(node_id=1, host="one", port=9092)
    metadata.update(request, MetadataResponse(brokers=[broker], topics=topics), BROKER, now_ms)


def answering(metadata: ProducerMetadata, *answers: tuple[MetadataResponseTopic, ...]) -> Callable[[], None]:
    """A wakeup that brings the next answer each time; after the last one, none."""
    left = iter(answers)

    def wakeup() -> None:
        topics = next(left, None)
        if topics is not None:
            answer(metadata, *topics)

    return wakeup


# Which topics are asked for


def test_without_topics_only_the_brokers_are_asked_for(metadata: ProducerMetadata) -> None:
    assert asked(metadata) == ([], False)


def test_a_new_topic_is_asked_for_at_once_and_alone(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, topic("orders"))
    metadata.add("payments", START)
    assert metadata.time_to_next_update_ms(START) == 0
    assert asked(metadata) == (["payments"], True)


def test_a_partial_answer_keeps_the_other_topics(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, topic("orders", 3))
    metadata.add("payments", START)
    answer(metadata, topic("payments", 2))
    cluster = metadata.fetch()
    assert [cluster.partition_count(t) for t in ("orders", "payments")] == [3, 2]


def test_a_topic_that_is_known_is_not_asked_for_again(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, topic("orders"))
    metadata.add("orders", START)
    assert metadata.time_to_next_update_ms(START) > 0


def test_a_full_update_takes_the_new_topics_along(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, topic("orders"))
    metadata.add("payments", START)
    metadata.request_update()
    assert asked(metadata) == (["orders", "payments"], False)
    answer(metadata, topic("orders"), topic("payments"))
    assert metadata.time_to_next_update_ms(START) > BACKOFF


def test_to_ask_again_about_a_topic_that_was_answered_is_a_retry(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, topic("orders", error=29))
    metadata.request_update_for_topic("orders")
    assert asked(metadata) == (["orders"], False)
    assert metadata.time_to_next_update_ms(START) == BACKOFF


def test_a_topic_added_while_a_request_is_under_way_is_asked_for_next(metadata: ProducerMetadata) -> None:
    request = metadata.next_request(START)
    request.body(12)
    metadata.add("orders", START)
    metadata.update(request, MetadataResponse(brokers=[MetadataResponseBroker(1, "one", 9092)]), BROKER, START)
    assert asked(metadata) == (["orders"], True)
    assert metadata.time_to_next_update_ms(START) == BACKOFF


def test_a_topic_that_is_not_used_is_forgotten(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    metadata.add("payments", START)
    answer(metadata, topic("orders"), topic("payments"))
    later = START + MAX_IDLE
    metadata.add("payments", later - 1)
    metadata.request_update()
    answer(metadata, topic("orders"), topic("payments"), now_ms=later)
    assert metadata.fetch().partition_count("orders") is None
    assert metadata.fetch().partition_count("payments") == 1
    metadata.request_update()
    assert asked(metadata, later) == (["payments"], False)


def test_a_topic_that_nobody_answered_about_is_not_forgotten(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, now_ms=START + 2 * MAX_IDLE)
    assert asked(metadata, START + 2 * MAX_IDLE)[0] == ["orders"]
    answer(metadata, topic("orders"), now_ms=START + 2 * MAX_IDLE)
    assert metadata.fetch().partition_count("orders") == 1


def test_topics_that_were_not_asked_for_are_not_kept(metadata: ProducerMetadata) -> None:
    answer(metadata, topic("other"))
    assert metadata.fetch().partition_count("other") is None


# Waiting


def test_a_topic_that_is_being_created_is_waited_for(metadata: ProducerMetadata) -> None:
    answers = [(topic("orders", error=code),) for code in (3, 5, 38)]
    cluster = metadata.wait_for_topic("orders", soon(), answering(metadata, *answers, (topic("orders", 4),)))
    assert cluster.partition_count("orders") == 4


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (29, r"\[AUTHORIZATION\] topic orders: TOPIC_AUTHORIZATION_FAILED; .* --producer --topic orders`"),
        (17, r"\[BROKER\] topic orders: INVALID_TOPIC_EXCEPTION: topic names have at most 249"),
    ],
)
def test_an_error_that_waiting_does_not_heal_ends_it_at_once(metadata: ProducerMetadata, error: int, text: str) -> None:
    with pytest.raises(BrokerError, match=text) as caught:
        metadata.wait_for_topic("orders", soon(), answering(metadata, (topic("orders", error=error),)))
    assert caught.value.facts["error_code"] == error


def test_an_error_of_another_wait_is_asked_about_again(metadata: ProducerMetadata) -> None:
    metadata.add("orders", START)
    answer(metadata, topic("orders", error=29))
    cluster = metadata.wait_for_topic("orders", soon(), answering(metadata, (topic("orders"),)))
    assert cluster.partition_count("orders") == 1


@pytest.mark.fault("metadata", "unknown topic ends at max.block.ms and names what was tried")
def test_the_deadline_names_the_topic_the_brokers_and_what_each_said(metadata: ProducerMetadata) -> None:
    answer_once = answering(metadata, (topic("orders", error=3),))

    def wakeup() -> None:
        for _ in range(6):  # twice: after the answer the topic is asked for again
            metadata.failed_attempt("bootstrap server a:1", "connection refused", START)
        answer_once()

    with pytest.raises(MetadataTimeoutError) as caught:
        metadata.wait_for_topic("orders", time.monotonic(), wakeup)
    text = str(caught.value)
    assert text.startswith("[METADATA_TIMEOUT] topic orders: timed out waiting for metadata after ")
    assert f" ms; asked {BROKER}: UNKNOWN_TOPIC_OR_PARTITION; bootstrap server a:1: connection refused (12 times). " in text
    assert text.endswith("Create the topic, or set auto.create.topics.enable=true on the brokers")
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


@pytest.mark.parametrize(
    ("strategy", "known", "advice"),
    [
        ("rebootstrap", True, "Check that bootstrap.servers names brokers"),
        ("none", True, "With metadata.recovery.strategy=none only known brokers are asked"),
        ("none", False, "Check that bootstrap.servers names brokers"),
    ],
)
def test_the_deadline_says_what_may_help(strategy: str, known: bool, advice: str) -> None:
    metadata = ProducerMetadata(producer_config({"bootstrap.servers": "a:1", "metadata.recovery.strategy": strategy}))
    if known:
        answer(metadata)
    with pytest.raises(MetadataTimeoutError, match=rf"\. {advice}"):
        metadata.wait_for_topic("orders", time.monotonic(), no_wakeup)


@pytest.mark.fault("metadata", "unknown topic ends at max.block.ms and names what was tried")
def test_the_deadline_names_who_owes_an_answer(metadata: ProducerMetadata) -> None:
    metadata.failed_attempt("bootstrap server a:1", "connection refused long ago", START)
    with pytest.raises(MetadataTimeoutError, match=r" ms; asked bootstrap server b:2: being connected to\. Check that"):
        metadata.wait_for_topic("orders", time.monotonic(), lambda: metadata.asking("bootstrap server b:2", "being connected to"))


def test_when_nobody_was_asked_meanwhile_the_deadline_tells_what_was_said_last(metadata: ProducerMetadata) -> None:
    metadata.failed_attempt("bootstrap server a:1", "connection refused", START)
    wanted = r"no broker was asked during this time; before it bootstrap server a:1: connection refused\. Check that"
    with pytest.raises(MetadataTimeoutError, match=wanted):
        metadata.wait_for_topic("orders", time.monotonic(), no_wakeup)


def test_the_deadline_tells_of_a_topic_without_partitions(metadata: ProducerMetadata) -> None:
    with pytest.raises(MetadataTimeoutError, match=r"asked broker 1 \(one:9092\): the topic has no partitions"):
        metadata.wait_for_topic("orders", time.monotonic(), answering(metadata, (topic("orders", 0),)))


def test_a_deadline_far_away_is_no_error(metadata: ProducerMetadata) -> None:
    assert metadata.wait_for_topic("orders", 2.0**62, answering(metadata, (topic("orders"),))) is metadata.fetch()


def test_a_refresh_brings_partitions_that_were_added(metadata: ProducerMetadata) -> None:
    metadata.wait_for_topic("orders", soon(), answering(metadata, (topic("orders", 4),)))
    cluster = metadata.refresh_topic("orders", soon(), answering(metadata, (topic("orders", 8),)))
    assert cluster.partition_count("orders") == 8


def test_wakeup_is_called_without_the_lock(metadata: ProducerMetadata) -> None:
    answer_it = answering(metadata, (topic("orders"),))

    def wakeup() -> None:
        with ThreadPoolExecutor(1) as other:
            other.submit(answer_it).result(30)

    assert metadata.wait_for_topic("orders", soon(), wakeup).partition_count("orders") == 1


@pytest.mark.fault("memory", "close with blocked senders")
def test_close_wakes_who_waits(metadata: ProducerMetadata) -> None:
    waiting = threading.Semaphore(0)
    with ThreadPoolExecutor(2) as tasks:
        waits = [tasks.submit(metadata.wait_for_topic, name, soon(), waiting.release) for name in ("orders", "payments")]
        for _ in waits:
            waiting.acquire(timeout=30)
        metadata.close()
        for wait, name in zip(waits, ("orders", "payments"), strict=True):
            with pytest.raises(UsageError, match=f"topic {name}: the producer was closed"):
                wait.result(30)


def test_waiting_after_close_ends_at_once(metadata: ProducerMetadata) -> None:
    metadata.close()
    with pytest.raises(UsageError, match="closed"):
        metadata.wait_for_topic("orders", soon(), no_wakeup)
