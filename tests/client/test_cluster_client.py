"""Requests to a cluster, from a thread that waits for the responses."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.faults.effects import Change
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.client import backoff
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.errors import DeadlineError, DisconnectedError, UnsupportedVersionError, UsageError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from spark_kafka_sink.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from spark_kafka_sink.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse
from spark_kafka_sink.protocol.apis.produce import PRODUCE, ProduceRequest
from spark_kafka_sink.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.kafka.brokers import Brokers
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import NewTopic, ProxiedKafka, embedded_in_make_test
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.waiting import DEADLINE_S, with_time_enough

pytestmark = pytest.mark.slow

CLUSTER = DescribeClusterRequest(include_cluster_authorized_operations=False)


def client_of(kafka: Kafka | str, **settings: object) -> ClusterClient:
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return ClusterClient(producer_config({"bootstrap.servers": servers, **options}))


def soon(seconds: float = DEADLINE_S) -> float:
    return time.monotonic() + seconds


def assert_told_at_the_deadline(ask: Callable[[float], object], *texts: str) -> None:
    """A DeadlineError has all these patterns. A deadline that is too short for this machine is followed by a longer one."""

    def message(seconds: float) -> str:
        with pytest.raises(DeadlineError) as caught:
            ask(soon(seconds))
        return caught.value.message

    def is_whole(found: str) -> bool:
        return all(re.search(text, found) for text in texts)

    found = with_time_enough(message, is_whole)
    assert is_whole(found), found


@pytest.fixture
def client(kafka: Kafka) -> Iterator[ClusterClient]:
    with client_of(kafka) as made:
        yield made


def test_any_broker_is_asked(client: ClusterClient) -> None:
    answer = client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon())

    assert [broker.broker_id for broker in answer.brokers] == list(client.brokers(soon()))


def of_broker(node_id: int) -> DescribeConfigsRequest:
    """What only this broker answers."""
    resource = DescribeConfigsResource(resource_type=4, resource_name=str(node_id), configuration_keys=["node.id"])
    return DescribeConfigsRequest(resources=[resource])


def test_many_requests_go_each_to_its_broker_and_answers_come_in_their_order(kafka3: Brokers) -> None:
    nodes = [*kafka3.broker_ids, *reversed(kafka3.broker_ids)]
    with client_of(kafka3) as client:
        answers = client.ask_many([ClusterRequest(node, DESCRIBE_CONFIGS, of_broker(node)) for node in nodes], soon())

    results = [answer.results[0] for answer in answers if isinstance(answer, DescribeConfigsResponse)]
    assert [(int(result.resource_name), result.error_code) for result in results] == [(node, 0) for node in nodes]


def test_transactional_ids_are_spread_over_coordinators(kafka3: Brokers) -> None:
    names = [f"asked-{number}" for number in range(30)]
    with client_of(kafka3) as client:
        kafka3.wait_for(lambda: not client.coordinators(names, soon()).late, "transactions have coordinators", 30)
        found = client.coordinators(names, soon())
        again = client.coordinators(names, soon())

    nodes = found.nodes
    assert found.late == {}
    assert list(nodes) == names
    # Not always three: other tests may have left all partitions with one leader.
    leaders = set[int]()

    def known() -> bool:
        partitions = kafka3.metadata("__transaction_state").topics["__transaction_state"].partitions.values()
        leaders.update(partition.leader for partition in partitions)
        return bool(leaders)

    # The broker that answers may know of the topic later than the one that was asked for coordinators.
    kafka3.wait_for(known, "leaders of __transaction_state", 30)
    assert set(nodes.values()) == leaders
    assert again == found


def test_a_cluster_that_was_away_can_be_asked_again_whatever_is_asked_first() -> None:
    with EmbeddedKafka(1) as kafka, client_of(kafka) as client:
        client.brokers(soon())
        kafka.kill(1)
        with pytest.raises(DeadlineError):
            client.brokers(soon(0.5))
        kafka.heal()

        assert client.coordinators(["asked"], soon()).nodes == {"asked": 1}


def test_of_many_requests_to_a_slow_broker_a_few_hundred_are_on_their_way() -> None:
    """If thousands were, the last would be overdue, and the connection would be closed with all of them."""

    def sent(seconds: float) -> int:
        versions = list[int]()

        def body(version: int) -> Message:
            versions.append(version)
            return CLUSTER

        with EmbeddedBroker() as broker, client_of(broker.bootstrap_servers) as client:
            (node_id,) = client.brokers(soon())
            with broker.faults.hold(ApiKey.DESCRIBE_CLUSTER):
                client.try_many([ClusterRequest(node_id, DESCRIBE_CLUSTER, body)] * 1_500, soon(seconds))
        return len(versions)

    assert with_time_enough(sent, lambda count: count >= 200, 1.5) == 200


def test_the_leader_of_each_partition_is_known(client: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic(3)

    assert {client.leader(topic, partition, soon()) for partition in range(3)} <= set(client.brokers(soon()))


def test_a_topic_is_waited_for_and_never_made_by_asking(client: ClusterClient, kafka: Kafka) -> None:
    told = r"the leader of nobodys-topic-0: .*UNKNOWN_TOPIC_OR_PARTITION"
    assert_told_at_the_deadline(lambda deadline: client.leader("nobodys-topic", 0, deadline), told)
    assert "nobodys-topic" not in kafka.metadata().topics


def test_how_many_partitions_a_topic_has_is_asked_anew_each_time(client: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic(3)

    assert client.topic(topic, soon()) == (3, 0)
    assert client.topic("nobodys-topic", soon()) == (0, 3)  # UNKNOWN_TOPIC_OR_PARTITION


def test_the_level_of_the_transactions_is_the_clusters(transaction_kafka: Kafka, transaction_version: int) -> None:
    with client_of(transaction_kafka) as client:
        level = client.finalized_feature("transaction.version", soon())

    assert level == (2 if transaction_version == 2 else 0)


def test_without_brokers_the_deadline_names_them(client: ClusterClient) -> None:
    (port,) = free_ports(1)
    told = rf"the brokers: bootstrap server 127.0.0.1:{port}: could not connect"
    with client_of(f"127.0.0.1:{port}") as nowhere:
        assert_told_at_the_deadline(lambda deadline: nowhere.ask_any(DESCRIBE_CLUSTER, CLUSTER, deadline), told)


def test_who_waits_for_brokers_is_told_so_long_before_the_deadline(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "WARN_AFTER_S", 0.2)
    (port,) = free_ports(1)
    address = f"the brokers: bootstrap server 127.0.0.1:{port}: "

    def warnings(seconds: float) -> list[str]:
        caplog.clear()
        with client_of(f"127.0.0.1:{port}") as client, pytest.raises(DeadlineError):
            client.brokers(soon(seconds))
        return [record.getMessage() for record in caplog.records if record.name == backoff.__name__]

    (warning,) = with_time_enough(warnings, lambda found: any(address in each for each in found), 1.5)
    assert warning.startswith("still waiting for the cluster: no usable response after ")
    assert address in warning


def test_a_broker_that_nobody_knows_is_named_with_those_that_are_known(client: ClusterClient) -> None:
    told = r"DESCRIBE_CLUSTER: broker 99 is unknown; known brokers: broker"
    assert_told_at_the_deadline(lambda deadline: client.ask(99, DESCRIBE_CLUSTER, CLUSTER, deadline), told)


@embedded_in_make_test("seconds of Java; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_a_broker_that_does_not_answer_is_named_at_the_deadline(kafka3: Brokers) -> None:
    with client_of(kafka3) as client:
        client.ask(2, DESCRIBE_CLUSTER, CLUSTER, soon())
        kafka3.pause(2)
        told = r"DESCRIBE_CLUSTER: broker 2 .* did not respond to DESCRIBE_CLUSTER"
        assert_told_at_the_deadline(lambda deadline: client.ask(2, DESCRIBE_CLUSTER, CLUSTER, deadline), told)
        kafka3.resume(2)

        assert client.ask(2, DESCRIBE_CLUSTER, CLUSTER, soon()).error_code == 0


@embedded_in_make_test("seconds of Java; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_when_a_broker_is_down_another_is_asked_and_it_is_asked_again_once_it_is_back(kafka3: Brokers) -> None:
    with client_of(kafka3) as client:
        client.ask(3, DESCRIBE_CLUSTER, CLUSTER, soon())
        kafka3.kill(3)
        (failed,) = client.try_many([ClusterRequest(3, DESCRIBE_CLUSTER, CLUSTER)], soon())
        assert all(client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon()).error_code == 0 for _ in range(6))
        kafka3.restart(3)

        assert isinstance(failed, DisconnectedError)
        assert client.ask(3, DESCRIBE_CLUSTER, CLUSTER, soon()).error_code == 0


@pytest.mark.fault("connection", "an idle connection is closed")
def test_connections_that_were_cut_between_two_requests_are_made_again(proxied_kafka: ProxiedKafka) -> None:
    with client_of(proxied_kafka.proxy.address) as client:
        client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon())
        proxied_kafka.proxy.cut()

        assert client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon()).error_code == 0


def test_a_version_that_a_broker_does_not_speak_is_an_error_at_once(client: ClusterClient) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"supports FIND_COORDINATOR v0 to v\d, but this client v90"):
        client.ask_any(
            FIND_COORDINATOR.limited_to(90, 90), FindCoordinatorRequest(key_type=1, coordinator_keys=["someone"]), soon()
        )


def test_a_forked_child_connects_anew_and_leaves_its_parents_connections_alone(
    client: ClusterClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    leader = client.leader(topic, 0, soon())
    nothing_yet = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    late = FetchRequest(max_wait_ms=300, min_bytes=1, topics=[nothing_yet])
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, b"%d" % client.ask(leader, DESCRIBE_CLUSTER, CLUSTER, soon()).error_code)
            # What is asked last is answered when the child is gone: on its parent's connection the parent would get that.
            client.try_many([ClusterRequest(leader, FETCH.limited_to(4, 12), late)], soon(0.2))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as said:
        assert said.read() == b"0"
    os.waitpid(child, 0)

    # Had the child ended a connection that both share, the parent would wait for an answer until it gives up: for 10 s.
    assert all(client.ask(leader, DESCRIBE_CLUSTER, CLUSTER, soon(5)).error_code == 0 for _ in range(3))


def test_a_client_that_is_closed_asks_nothing(client: ClusterClient) -> None:
    client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon())
    client.close()
    client.close()

    with pytest.raises(UsageError, match="closed"):
        client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon())


def test_nothing_is_asked_after_the_deadline(client: ClusterClient) -> None:
    with pytest.raises(DeadlineError):
        client.ask_any(PRODUCE, ProduceRequest(), time.monotonic() - 1)


# A controller, as with ZooKeeper, where no other broker creates topics


def made_by_controller(client: ClusterClient, name: str, deadline: float) -> int:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    return code_of(client.ask_controller(CREATE_TOPICS, request, code_of, deadline))


def code_of(answer: CreateTopicsResponse) -> int:
    return answer.topics[0].error_code


def naming(controller_id: int) -> Change:
    def change(_: Message, answer: Message) -> Message:
        assert isinstance(answer, MetadataResponse)
        answer.controller_id = controller_id
        return answer

    return change


@pytest.fixture
def three_brokers() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, in_memory=True) as made:
        yield made


def refusing(broker: EmbeddedBroker, *broker_ids: int) -> list[Fault]:
    return [broker.faults.fail(ApiKey.CREATE_TOPICS, ErrorCode.NOT_CONTROLLER, times=None, broker=each) for each in broker_ids]


def test_the_controller_is_asked_that_brokers_name(three_brokers: EmbeddedKafka) -> None:
    broker = three_brokers.broker
    refused = refusing(broker, 1, 2)
    broker.faults.alter(ApiKey.METADATA, naming(3), times=None)
    for number in range(8):
        with client_of(three_brokers) as client:
            assert made_by_controller(client, f"made-{number}", soon()) == 0
    assert [fault.hits for fault in refused] == [0, 0]


def test_a_controller_that_moved_is_found(three_brokers: EmbeddedKafka) -> None:
    broker = three_brokers.broker
    with client_of(three_brokers) as client, broker.faults.alter(ApiKey.METADATA, naming(3), times=None):
        assert made_by_controller(client, "first", soon()) == 0
        broker.faults.clear()
        broker.faults.alter(ApiKey.METADATA, naming(1), times=None)
        (_, refused) = refusing(broker, 2, 3)
        assert made_by_controller(client, "second", soon()) == 0
        assert refused.hits == 1


def test_where_brokers_name_another_one_than_the_controller_all_are_asked(three_brokers: EmbeddedKafka) -> None:
    broker = three_brokers.broker
    refusing(broker, 1, 2)
    broker.faults.alter(ApiKey.METADATA, naming(2), times=None)
    with client_of(three_brokers) as client:
        assert made_by_controller(client, "made", soon()) == 0


def test_where_no_broker_is_the_controller_the_deadline_names_each(three_brokers: EmbeddedKafka) -> None:
    refusing(three_brokers.broker, 1, 2, 3)
    brokers = [f"broker {each} ({three_brokers.address(each)})" for each in three_brokers.broker_ids]
    told = [f"CREATE_TOPICS of {re.escape(broker)}: NOT_CONTROLLER" for broker in brokers]
    with client_of(three_brokers) as client:
        assert_told_at_the_deadline(lambda deadline: made_by_controller(client, "never", deadline), *told)


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
def test_after_a_lost_connection_to_the_controller_another_is_asked(three_brokers: EmbeddedKafka, cut: str) -> None:
    broker = three_brokers.broker
    broker.faults.alter(ApiKey.METADATA, naming(2), times=None)
    lost = getattr(broker.faults, cut)(ApiKey.CREATE_TOPICS, times=None, broker=2)
    with client_of(three_brokers) as client:
        code = made_by_controller(client, "made", soon())
    assert code == (0 if cut == "cut_before" else ErrorCode.TOPIC_ALREADY_EXISTS)
    assert lost.hits == 1


def test_after_a_lost_connection_any_other_broker_is_asked(three_brokers: EmbeddedKafka) -> None:
    lost = [three_brokers.broker.faults.cut_before(ApiKey.DESCRIBE_CLUSTER, times=None, broker=each) for each in (1, 2)]
    with client_of(three_brokers) as client:
        assert client.ask_any(DESCRIBE_CLUSTER, CLUSTER, soon()).error_code == 0
    assert all(fault.hits <= 1 for fault in lost)
