"""Answers with an error: of which requests, of which of their partitions, and whether what was asked is done."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.faults.asking import connected, end_offset, metadata, metadata_request, produce, produced
from tests.broker.network.client import Client, request_frame

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_next_answers_have_the_error_and_nothing_is_stored(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    fault = broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER, times=2)

    assert [produced(client, topic, 0, 1) for _ in range(3)] == [{0: NOT_LEADER, 1: NOT_LEADER}] * 2 + [{0: 0, 1: 0}]
    assert end_offset(client, topic) == 1
    assert (fault.hits, fault.is_over) == (2, True)


def test_applied_means_stored_and_told_otherwise(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    broker.faults.fail(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, applied=True)

    assert produced(client, topic, 0) == {0: ErrorCode.REQUEST_TIMED_OUT}
    assert end_offset(client, topic) == 1


@pytest.mark.parametrize("applied", [False, True])
def test_one_partition_fails_and_the_others_of_the_request_do_not(
    broker: EmbeddedBroker, client: Client, topic: str, *, applied: bool
) -> None:
    broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER, topic=topic, partition=1, applied=applied)

    assert produced(client, topic, 0, 1) == {0: 0, 1: NOT_LEADER}
    assert (end_offset(client, topic, 0), end_offset(client, topic, 1)) == (1, int(applied))


def test_requests_for_other_topics_partitions_clients_and_brokers_are_not_hit(
    broker: EmbeddedBroker, client: Client, topic: str
) -> None:
    faults = broker.faults
    hit = [
        faults.fail(ApiKey.PRODUCE, NOT_LEADER, topic="another"),
        faults.fail(ApiKey.PRODUCE, NOT_LEADER, topic=topic, partition=1),
        faults.fail(ApiKey.PRODUCE, NOT_LEADER, client_id="another"),
        faults.fail(ApiKey.PRODUCE, NOT_LEADER, broker=2),
        faults.fail(ApiKey.FETCH, NOT_LEADER),
    ]

    assert produced(client, topic, 0) == {0: 0}
    assert [fault.hits for fault in hit] == [0] * 5


def test_a_client_and_a_broker_are_found_by_their_names(broker: EmbeddedBroker, topic: str) -> None:
    by_client = broker.faults.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, client_id="test", broker=2)
    with connected(broker, 2) as second:
        answer = metadata(second, [topic])

    assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert by_client.hits == 1


def test_topics_that_are_asked_for_by_id_are_found_by_their_name(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    fault = broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER, topic=topic, partition=0)
    asked = produce(topic, 0, 1)
    asked.topic_data[0].topic_id = broker.cluster.image.topics[topic].topic_id
    answer: Any = client.ask(ApiKey.PRODUCE, 13, asked)

    (told,) = answer.responses
    assert {each.index: each.error_code for each in told.partition_responses} == {0: NOT_LEADER, 1: 0}
    assert fault.hits == 1


def test_an_error_of_metadata_leaves_the_brokers_in_the_answer(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    other = broker.create_topic(f"{topic}-other")
    broker.faults.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, topic=topic)
    answer = metadata(client, [topic, other])

    assert {each.name: each.error_code for each in answer.topics} == {topic: ErrorCode.LEADER_NOT_AVAILABLE, other: 0}
    assert [each.node_id for each in answer.brokers] == [1, 2]


def test_a_request_for_brokers_alone_is_not_hit_by_an_error_of_metadata(
    broker: EmbeddedBroker, client: Client, topic: str
) -> None:
    fault = broker.faults.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE)

    assert (metadata(client, []).topics, fault.hits) == ((), 0)
    assert {each.error_code for each in metadata(client).topics} == {ErrorCode.LEADER_NOT_AVAILABLE}


@pytest.mark.parametrize("version", [11, 13])
def test_an_error_of_a_fetch_is_said_of_its_partitions(broker: EmbeddedBroker, client: Client, topic: str, version: int) -> None:
    broker.faults.fail(ApiKey.FETCH, NOT_LEADER)
    topic_id = broker.cluster.image.topics[topic].topic_id
    answer: Any = client.ask(ApiKey.FETCH, version, FetchRequest(topics=(FetchTopic(topic, topic_id, (FetchPartition(0),)),)))

    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, NOT_LEADER)


def test_an_error_of_a_fetch_session_is_said_of_the_whole(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    broker.faults.fail(ApiKey.FETCH, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    answer: Any = client.ask(ApiKey.FETCH, 11, FetchRequest(topics=(FetchTopic(topic, partitions=(FetchPartition(0),)),)))

    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_producer_that_waits_for_no_answer_loses_its_connection(broker: EmbeddedBroker, topic: str) -> None:
    for applied in (False, True):
        broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER, applied=applied)
        with connected(broker) as client:
            client.send(request_frame(ApiKey.PRODUCE, 9, produce(topic, 0, acks=0)))
            assert client.is_closed_by_broker()
    with connected(broker) as client:
        assert end_offset(client, topic) == 1


def test_a_code_that_nobody_knows_can_be_answered(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    fault = broker.faults.fail(ApiKey.PRODUCE, 999)

    assert produced(client, topic, 0) == {0: 999}
    assert str(fault) == "999 for PRODUCE, hit 1 time"


def test_the_message_goes_along(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    broker.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, message="not today")
    answer: Any = client.ask(ApiKey.PRODUCE, 9, produce(topic))

    assert answer.responses[0].partition_responses[0].error_message == "not today"


def test_an_answer_can_be_altered(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    """Such as one that lacks a partition."""

    def without_partition(asked: Any, answer: Any) -> ProduceResponse:
        assert len(asked.topic_data[0].partition_data) == 2
        answer.responses[0].partition_responses = answer.responses[0].partition_responses[:1]
        return ProduceResponse(answer.responses)

    broker.faults.alter(ApiKey.PRODUCE, without_partition)

    assert produced(client, topic, 0, 1) == {0: 0}


def test_an_alteration_that_raises_closes_the_connection(
    broker: EmbeddedBroker, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.faults.alter(ApiKey.PRODUCE, lambda asked, answer: 1 / 0)  # type: ignore[arg-type, return-value]
    client.send(request_frame(ApiKey.PRODUCE, 9, produce(topic)))

    assert client.is_closed_by_broker()
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_takes_the_place_of_what_was_asked(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    """Of the named partition, which alone is in the body; the other is served."""

    def refusal(asked: Any) -> ProduceResponse:
        (wanted,) = asked.topic_data
        (partition,) = wanted.partition_data
        refused = PartitionProduceResponse(partition.index, ErrorCode.UNKNOWN_PRODUCER_ID, -1, log_start_offset=7)
        return ProduceResponse((TopicProduceResponse(wanted.name, partition_responses=(refused,)),))

    broker.faults.answer(ApiKey.PRODUCE, refusal, topic=topic, partition=1)

    assert produced(client, topic, 0, 1) == {0: 0, 1: ErrorCode.UNKNOWN_PRODUCER_ID}
    assert (end_offset(client, topic, 0), end_offset(client, topic, 1)) == (1, 0)


def test_metadata_can_be_answered_as_a_whole_and_without_an_answer_the_connection_closes(
    broker: EmbeddedBroker, client: Client
) -> None:
    broker.faults.answer(ApiKey.METADATA, lambda asked: MetadataResponse(brokers=(), cluster_id="none", controller_id=-1))
    broker.faults.answer(ApiKey.METADATA, lambda asked: None)

    assert metadata(client).cluster_id == "none"
    client.send(request_frame(ApiKey.METADATA, 9, metadata_request()))
    assert client.is_closed_by_broker()


def test_a_function_says_which_requests_are_hit(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    has_two = broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER, when=lambda asked: len(asked.topic_data[0].partition_data) == 2)

    assert [produced(client, topic, *each) for each in ([0], [0, 1])] == [{0: 0}, {0: NOT_LEADER, 1: NOT_LEADER}]
    assert has_two.hits == 1


def test_a_watch_shows_requests_before_they_are_served(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    """So that what it does about one hits that one."""
    seen: list[tuple[int, str]] = []

    def look(broker_id: int, asked: Any) -> None:
        seen.append((broker_id, asked.topic_data[0].name))
        broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER)

    broker.faults.watch(ApiKey.PRODUCE, on_request=look)

    assert produced(client, topic, 0) == {0: NOT_LEADER}
    assert seen == [(1, topic)]


def test_a_watch_that_raises_harms_no_request(
    broker: EmbeddedBroker, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.faults.watch(ApiKey.PRODUCE, on_request=lambda broker_id, asked: 1 / 0)

    assert produced(client, topic, 0) == {0: 0}
    assert "ZeroDivisionError" in caplog.text


def test_the_oldest_fault_hits_first_and_one_at_a_time(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    broker.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER)

    assert [produced(client, topic, 0)[0] for _ in range(3)] == [ErrorCode.NOT_ENOUGH_REPLICAS, NOT_LEADER, 0]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"times": 0}, "times=0 is not valid: it must be at least 1, or None"),
        ({"broker": 3}, "there is no broker 3"),
        ({"partition": 0}, "partition=0 is not valid: give the topic too"),
        ({"topic": "a", "partition": -1}, "partition=-1 is not valid: give the topic too, and a number from 0"),
    ],
)
def test_what_can_hit_nothing_is_refused(broker: EmbeddedBroker, where: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        broker.faults.fail(ApiKey.PRODUCE, NOT_LEADER, **where)


def test_other_arguments_that_cannot_be_are_refused(broker: EmbeddedBroker) -> None:
    faults = broker.faults
    with pytest.raises(OptionError, match="HEARTBEAT cannot be narrowed to a topic, only these can: PRODUCE, FETCH"):
        faults.cut_before(ApiKey.HEARTBEAT, topic="a")
    with pytest.raises(OptionError, match="METADATA has topics but no partitions"):
        faults.fail(ApiKey.METADATA, NOT_LEADER, topic="a", partition=0)
    with pytest.raises(OptionError, match="0 is not an error code"):
        faults.fail(ApiKey.PRODUCE, ErrorCode.NONE)
    with pytest.raises(OptionError, match="ms=-1 must not be negative"):
        faults.delay(ApiKey.PRODUCE, -1)


def test_faults_may_be_there_before_the_broker_and_end_with_it() -> None:
    broker = EmbeddedBroker()
    fault = broker.faults.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, times=None)
    with broker:
        broker.create_topic("events")
        with connected(broker) as client:
            assert metadata(client, ["events"]).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert fault.is_over
    with broker, connected(broker) as client:
        broker.create_topic("events")
        assert metadata(client, ["events"]).topics[0].error_code == 0
