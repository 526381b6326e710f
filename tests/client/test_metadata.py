"""Metadata: what is known, when to ask again, and which answer serves whom."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.metadata import NEVER_MS, Metadata, MetadataRequestAndVersion
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.apis.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID
from tests.examples import examples

ID = uuid.UUID(int=1)
BROKER = "broker 1 (one:9092)"
BACKOFF, MAX_AGE = 100, 10_000
START = 1_000_000  # ms; a monotonic clock says nothing of its zero

# Without room to grow there is no jitter: a back-off is exactly BACKOFF.
FIXED = {"retry.backoff.ms": BACKOFF, "retry.backoff.max.ms": BACKOFF}
GROWING = {"retry.backoff.ms": BACKOFF, "retry.backoff.max.ms": 1000}


class Latest(random.Random):
    """Draws the largest number each time, so that metadata lives exactly MAX_AGE."""

    def uniform(self, a: float, b: float) -> float:
        return b


def metadata(options: Mapping[str, object] = FIXED, rng: random.Random | None = None) -> Metadata:
    return Metadata(producer_config({"bootstrap.servers": "a:1", "metadata.max.age.ms": MAX_AGE, **options}), rng or Latest())


def topic(
    name: str | None, *leaders_and_epochs: tuple[int, int], error: int = 0, topic_id: uuid.UUID = ID, partition_error: int = 0
) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(error_code=partition_error, partition_index=p, leader_id=leader, leader_epoch=epoch)
        for p, (leader, epoch) in enumerate(leaders_and_epochs)
    ]
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=partitions)


def response(*topics: MetadataResponseTopic, cluster_id: str | None = "c") -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=n, host=f"host{n}", port=9092) for n in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=topics, cluster_id=cluster_id)


def ask(of: Metadata, now_ms: int = START, version: int = 12) -> MetadataRequestAndVersion:
    request = of.next_request(now_ms)
    request.body(version)
    return request


def answer(
    of: Metadata,
    *topics: MetadataResponseTopic,
    now_ms: int = START,
    version: int = 12,
    cluster_id: str | None = "c",
    broker: str = BROKER,
) -> None:
    of.update(ask(of, now_ms, version), response(*topics, cluster_id=cluster_id), broker, now_ms)


def test_the_first_update_is_due_at_once_and_asks_for_everything() -> None:
    of = metadata()
    request = of.next_request(START)
    assert of.time_to_next_update_ms(START) == 0
    assert not request.partial
    assert request.body(12).topics is None
    assert request.body(12).allow_auto_topic_creation


def test_an_answer_makes_a_new_snapshot_and_leaves_the_old_one() -> None:
    of = metadata()
    before = of.fetch()
    answer(of, topic("orders", (1, 5), (2, 0)))
    assert before.partition_count("orders") is None
    cluster = of.fetch()
    assert [cluster.leader("orders", p) for p in (0, 1)] == [1, 2]
    assert (cluster.cluster_id, cluster.topic_id("orders")) == ("c", ID)
    assert of.nodes() == {1: Node(1, "host1", 9092), 2: Node(2, "host2", 9092)}


def test_nothing_is_due_after_an_answer_until_it_is_old() -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5)))
    assert of.time_to_next_update_ms(START) == MAX_AGE
    assert of.time_to_next_update_ms(START + MAX_AGE) == 0
    assert not of.next_request(START + MAX_AGE).partial


def test_a_requested_update_waits_for_the_back_off_after_the_last_answer() -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5)))
    of.request_update()
    assert of.time_to_next_update_ms(START) == BACKOFF
    assert of.time_to_next_update_ms(START + BACKOFF) == 0


def test_failed_attempts_are_further_and_further_apart() -> None:
    of = metadata(GROWING)
    waits = []
    for _ in range(8):
        of.failed_attempt(BROKER, "connection refused", START)
        waits.append(of.time_to_next_update_ms(START))
    for wait, nominal in zip(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert nominal * 0.8 - 1 <= wait <= min(nominal * 1.2, 1000)


def test_after_a_rejected_login_nobody_is_asked_until_somebody_wants_an_update() -> None:
    of = metadata()
    version = of.request_update()
    error = AuthenticationError("the password is wrong")
    assert of.rejected(BROKER, error, START)
    assert of.rejection(version) is error
    assert of.time_to_next_update_ms(START + 100 * MAX_AGE) == NEVER_MS
    later = of.request_update()
    assert of.rejection(version) is error
    assert of.rejection(later) is None
    assert of.time_to_next_update_ms(START + BACKOFF) == 0
    of.update(ask(of), response(), BROKER, START + BACKOFF)
    assert of.rejection(version) is None


def test_a_rejected_login_at_a_broker_that_nobody_was_to_ask_ends_no_wait() -> None:
    of = metadata()
    of.update(ask(of), response(), BROKER, START)
    assert not of.rejected(BROKER, AuthenticationError("the password is wrong"), START + 1)
    assert of.rejection(1) is None
    assert of.time_to_next_update_ms(START) == MAX_AGE


def test_metadata_that_is_only_old_is_not_asked_for_again_and_again_after_a_rejected_login() -> None:
    of = metadata()
    of.update(ask(of), response(), BROKER, START)
    assert of.rejected(BROKER, AuthenticationError("the password is wrong"), START + MAX_AGE)
    assert of.time_to_next_update_ms(START + 2 * MAX_AGE) == NEVER_MS
    of.request_update()
    assert of.time_to_next_update_ms(START + 2 * MAX_AGE) == 0


def test_an_answer_ends_the_growth_of_the_back_off() -> None:
    of = metadata(GROWING)
    for _ in range(8):
        of.failed_attempt(BROKER, "connection refused", START)
    answer(of, topic("orders", (1, 5)))
    of.request_update()
    assert of.time_to_next_update_ms(START) <= BACKOFF * 1.2


def test_answers_that_say_nothing_new_are_further_and_further_apart() -> None:
    of = metadata(GROWING)
    answer(of, topic("orders", (1, 5)))
    for _ in range(6):
        answer(of, topic("orders", (1, 5)))
        of.request_update()
    assert of.time_to_next_update_ms(START) >= 800
    answer(of, topic("orders", (2, 6)))
    of.request_update()
    assert of.time_to_next_update_ms(START) <= BACKOFF * 1.2


def test_an_update_for_age_is_not_put_off_by_answers_that_say_nothing_new() -> None:
    of = metadata({**GROWING, "metadata.max.age.ms": 200})
    for _ in range(7):
        answer(of, topic("orders", (1, 5)))
    assert of.time_to_next_update_ms(START) == 200


def test_clients_that_started_together_refresh_at_different_times_and_never_too_late() -> None:
    clients = [metadata(rng=random.Random(seed)) for seed in range(200)]
    for each in clients:
        answer(each, topic("orders", (1, 5)))
    due = sorted(each.time_to_next_update_ms(START) for each in clients)
    assert 0.8 * MAX_AGE <= due[0] < 0.85 * MAX_AGE
    assert 0.95 * MAX_AGE < due[-1] <= MAX_AGE
    assert len(set(due)) > 150


def test_new_topics_do_not_wait_for_any_back_off() -> None:
    of = metadata(GROWING)
    for _ in range(6):
        answer(of, topic("orders", (1, 5)))
    of.failed_attempt(BROKER, "connection refused", START)
    of.request_update_for_new_topics()
    assert of.time_to_next_update_ms(START) == 0


def test_an_answer_serves_only_what_was_requested_before_it_was_asked_for() -> None:
    of = metadata()
    request = ask(of)
    of.request_update()
    of.update(request, response(topic("orders", (1, 5))), BROKER, START)
    assert of.time_to_next_update_ms(START) == BACKOFF
    answer(of, topic("orders", (1, 5)), now_ms=START + BACKOFF)
    assert of.time_to_next_update_ms(START + BACKOFF) == MAX_AGE


@pytest.mark.fault("metadata", "stale leader epoch")
def test_a_leader_that_a_broker_behind_names_is_not_taken() -> None:
    of = metadata()
    answer(of, topic("orders", (2, 6)))
    answer(of, topic("orders", (1, 5)))
    assert (of.fetch().leader("orders", 0), of.fetch().leader_epoch("orders", 0)) == (2, 6)


@pytest.mark.fault("metadata", "stale topic id")
@pytest.mark.parametrize("deletion_seen", [True, False])
def test_a_topic_that_was_deleted_does_not_come_back_from_a_broker_that_has_not_heard_of_it(deletion_seen: bool) -> None:
    of = metadata()
    answer(of, topic("orders", (2, 6)))
    if deletion_seen:
        answer(of, topic("orders", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    again = uuid.UUID(int=2)
    answer(of, topic("orders", (1, 0), topic_id=again))
    answer(of, topic("orders", (2, 7)))
    cluster = of.fetch()
    assert (cluster.topic_id("orders"), cluster.leader("orders", 0), cluster.leader_epoch("orders", 0)) == (again, 1, 0)
    answer(of, topic("orders", (2, 1), topic_id=again))
    assert of.fetch().leader("orders", 0) == 2


def test_with_a_topic_that_is_not_used_any_more_its_past_is_forgotten() -> None:
    class Few(Metadata):
        kept = True

        def _retains(self, topic: str, now_ms: int) -> bool:
            return self.kept

    of = Few(producer_config({"bootstrap.servers": "a:1", **FIXED}))
    answer(of, topic("orders", (2, 6)))
    answer(of, topic("orders", (1, 0), topic_id=uuid.UUID(int=2)))
    of.kept = False
    answer(of)
    of.kept = True
    answer(of, topic("orders", (2, 6)))
    answer(of, topic("orders", (2, 7)))
    assert of.fetch().leader_epoch("orders", 0) == 7


def test_another_cluster_and_then_the_first_again_are_each_believed() -> None:
    """A fail-over and back: there is one address for both, and each has a topic of this name with an id of its own."""
    of = metadata()
    other = uuid.UUID(int=2)
    answer(of, topic("orders", (2, 6), (2, 6)), cluster_id="a")
    answer(of, topic("orders", (1, 0), topic_id=other), cluster_id="b")
    assert (of.fetch().topic_id("orders"), of.fetch().partition_count("orders")) == (other, 1)
    answer(of, topic("orders", (2, 6), (1, 7)), cluster_id="a")
    cluster = of.fetch()
    assert (cluster.topic_id("orders"), cluster.partition_count("orders"), cluster.leader("orders", 1)) == (ID, 2, 1)


def test_leader_epochs_of_another_cluster_do_not_count_where_topics_have_no_ids() -> None:
    of = metadata()
    answer(of, topic("orders", (2, 6), topic_id=ZERO_UUID), version=9, cluster_id="a")
    answer(of, topic("orders", (1, 0), topic_id=ZERO_UUID), version=9, cluster_id="b")
    assert (of.fetch().leader("orders", 0), of.fetch().leader_epoch("orders", 0)) == (1, 0)


def test_an_answer_that_names_no_cluster_is_not_another_clusters() -> None:
    of = metadata()
    answer(of, topic("orders", (2, 6)))
    answer(of, topic("orders", (1, 5)), cluster_id=None)
    answer(of, topic("orders", (1, 5)))
    assert of.fetch().leader_epoch("orders", 0) == 6


def test_after_another_clusters_answer_about_some_topics_the_others_are_asked_about_again() -> None:
    of = metadata()
    answer(of, topic("orders", (2, 6)), cluster_id="a")
    of.request_update_for_new_topics()
    request = replace(ask(of), partial=True)
    of.update(request, response(topic("new", (1, 0)), cluster_id="b"), BROKER, START)
    assert of.time_to_next_update_ms(START) == BACKOFF
    assert not of.next_request(START + BACKOFF).partial


def test_after_a_rebootstrap_any_topic_id_is_believed() -> None:
    """The cluster may have been restored from a copy, with its own id and the topic of before."""
    of = metadata()
    answer(of, topic("orders", (2, 6)))
    answer(of, topic("orders", (1, 0), topic_id=uuid.UUID(int=2)))
    of.rebootstrap()
    answer(of, topic("orders", (2, 5)))
    assert (of.fetch().topic_id("orders"), of.fetch().leader_epoch("orders", 0)) == (ID, 5)


def test_that_a_topic_was_made_again_is_certain_once_a_second_broker_says_so() -> None:
    of, again = metadata(), uuid.UUID(int=2)
    answer(of, topic("orders", (2, 6), (2, 6)))
    assert of.made_again_with("orders") is None
    answer(of, topic("orders", (1, 0), topic_id=again))
    answer(of, topic("orders", (1, 0), topic_id=again))
    assert of.made_again_with("orders") is None
    answer(of, topic("orders", (1, 0), topic_id=again), broker="broker 2 (two:9092)")
    assert of.made_again_with("orders") == 1
    answer(of, topic("orders", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert of.made_again_with("orders") is None


def test_nothing_is_certain_of_a_topic_that_is_not_known() -> None:
    assert metadata().made_again_with("orders") is None


def test_an_answer_without_a_topic_id_says_nothing_of_a_deletion() -> None:
    """A broker before Kafka 2.8 among newer ones."""
    of = metadata()
    answer(of, topic("orders", (2, 6)))
    answer(of, topic("orders", (1, 7), topic_id=ZERO_UUID), version=9)
    answer(of, topic("orders", (2, 8)))
    assert (of.fetch().topic_id("orders"), of.fetch().leader("orders", 0)) == (ID, 2)


@pytest.mark.parametrize(("version", "epoch"), [(8, None), (9, 5)])
def test_leader_epochs_are_believed_from_version_9(version: int, epoch: int | None) -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5), topic_id=ZERO_UUID), version=version)
    assert of.fetch().leader_epoch("orders", 0) == epoch
    assert of.fetch().topic_id("orders") is None


def test_a_topic_with_an_error_has_it_and_no_partitions() -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5)))
    answer(of, topic("orders", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert of.fetch().topic_error("orders") == 29
    assert of.fetch().partition_count("orders") is None
    assert of.time_to_next_update_ms(START) == MAX_AGE


@pytest.mark.parametrize("error", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_an_error_that_time_may_heal_asks_again(error: int) -> None:
    for bad in (topic("orders", error=error), topic("orders", (-1, 5), partition_error=error)):
        of = metadata()
        answer(of, bad)
        assert of.time_to_next_update_ms(START) == BACKOFF


def test_a_topic_without_a_name_is_passed_over() -> None:
    of = metadata()
    answer(of, topic(None, (1, 5)), topic("orders", (1, 5)))
    assert list(of.fetch().topics) == ["orders"]


def test_an_answer_without_brokers_is_a_failed_attempt() -> None:
    of = metadata()
    assert of.update(ask(of), MetadataResponse(), BROKER, START) is False
    assert of.time_to_next_update_ms(START) == BACKOFF
    assert of.fetch().cluster_id is None


def test_an_answer_with_an_error_of_its_own_is_a_failed_attempt_and_nothing_in_it_counts() -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5)))
    refusal = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=9, host="x", port=1)], error_code=ErrorCode.REBOOTSTRAP_REQUIRED
    )
    assert of.update(ask(of, START + MAX_AGE), refusal, BROKER, START + MAX_AGE) is False
    assert list(of.nodes()) == [1, 2]
    assert of.time_to_next_update_ms(START + MAX_AGE) == BACKOFF


def test_a_rebootstrap_forgets_the_brokers_and_asks_for_everything_but_keeps_the_topics() -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5)))
    of.rebootstrap()
    cluster = of.fetch()
    assert of.nodes() == {}
    assert (cluster.partition_count("orders"), cluster.leader("orders", 0)) == (1, None)
    assert of.time_to_next_update_ms(START + BACKOFF) == 0
    assert not of.next_request(START + BACKOFF).partial


def test_a_newer_leader_named_by_a_broker_that_refused_is_taken() -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5), (1, 5)))
    new = of.update_leaders(
        {("orders", 0): LeaderIdAndEpoch(leader_id=7, leader_epoch=6)}, [NodeEndpoint(node_id=7, host="seven", port=9099)]
    )
    assert new == {("orders", 0)}
    cluster = of.fetch()
    assert (cluster.leader("orders", 0), cluster.leader("orders", 1)) == (7, 1)
    assert cluster.nodes[7] == Node(7, "seven", 9099)
    answer(of, topic("orders", (1, 5), (1, 5)))
    assert of.fetch().leader_epoch("orders", 0) == 6


@pytest.mark.parametrize(
    ("name", "partition", "leader", "epoch"),
    [
        pytest.param("orders", 0, 2, 5, id="not newer"),
        pytest.param("orders", 0, 9, 6, id="node without an address"),
        pytest.param("orders", 1, 2, 6, id="unknown partition"),
        pytest.param("other", 0, 2, 6, id="unknown topic"),
        pytest.param("orders", 0, -1, -1, id="no leader"),
    ],
)
def test_other_hints_are_not_taken(name: str, partition: int, leader: int, epoch: int) -> None:
    of = metadata()
    answer(of, topic("orders", (1, 5)))
    before = of.fetch()
    assert of.update_leaders({(name, partition): LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)}, []) == set()
    assert of.fetch() is before


def test_an_answer_after_close_changes_nothing() -> None:
    of = metadata()
    request = ask(of)
    of.close()
    of.update(request, response(topic("orders", (1, 5))), BROKER, START)
    assert of.fetch().partition_count("orders") is None


class Epochs(RuleBasedStateMachine):
    """Answers, hints and errors in any order: a leader of an older epoch is never seen after a newer one."""

    def __init__(self) -> None:
        super().__init__()
        self.of = metadata()
        self.newest = -1

    @rule(epoch=st.integers(0, 20))
    def answered(self, epoch: int) -> None:
        answer(self.of, topic("orders", (1 + epoch % 2, epoch)))
        self.newest = max(self.newest, epoch)

    @rule(error=st.sampled_from([3, 5, 29]))
    def refused(self, error: int) -> None:
        answer(self.of, topic("orders", error=error))

    @rule()
    def without_leader(self) -> None:
        answer(self.of, topic("orders", (-1, -1)))

    @rule(epoch=st.integers(0, 20))
    def hinted(self, epoch: int) -> None:
        taken = self.of.update_leaders({("orders", 0): LeaderIdAndEpoch(leader_id=1 + epoch % 2, leader_epoch=epoch)}, [])
        if taken:
            assert epoch > self.newest
            self.newest = epoch

    @invariant()
    def the_leader_is_that_of_the_newest_epoch(self) -> None:
        cluster = self.of.fetch()
        if cluster.partition_count("orders") is not None:
            assert cluster.leader_epoch("orders", 0) == (None if self.newest < 0 else self.newest)
            assert cluster.leader("orders", 0) in (None, 1 + self.newest % 2)


TestEpochs = Epochs.TestCase
TestEpochs.settings = settings(
    max_examples=examples(50), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
