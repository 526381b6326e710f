from __future__ import annotations

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.guarantee_options import CommitLogSettings, ExactlyOnce, Guarantee
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
EXACTLY_ONCE = {**SERVERS, "delivery.guarantee": "exactly-once"}


def refused(options: dict[str, str], **more: str) -> str:
    with pytest.raises(OptionError) as caught:
        sink_options({**options, **{name.replace("__", "."): value for name, value in more.items()}})
    text = str(caught.value)
    assert str(caught.value.facts["option"]) in text
    return text


def guaranteed(word: str, **more: str) -> SinkOptions:
    return sink_options({**SERVERS, "delivery.guarantee": word, **{name.replace("__", "."): each for name, each in more.items()}})


def test_at_least_once_is_the_default_and_may_be_asked_for() -> None:
    assert guaranteed("at-least-once") == guaranteed("At-Least-Once") == sink_options(SERVERS)
    assert sink_options(SERVERS).guarantee is Guarantee.AT_LEAST_ONCE
    assert (sink_options(SERVERS).producer.acks, sink_options(SERVERS).exactly_once) == (-1, None)


@pytest.mark.parametrize("word", ["at-most-once", "", "exactly once"])
def test_another_word_is_refused_with_those_that_there_are(word: str) -> None:
    text = refused(SERVERS, delivery__guarantee=word)
    assert text == f"[OPTION] option delivery.guarantee: {word!r} is not one of none, at-least-once, exactly-once"


@pytest.mark.parametrize("acks", ["0", "1"])
def test_at_least_once_cannot_be_kept_when_only_some_brokers_answer_for_a_row(acks: str) -> None:
    text = refused(SERVERS, kafka__acks=acks)
    assert text.startswith(f"[OPTION] option kafka.acks: {acks} cannot be combined with delivery.guarantee=at-least-once: ")
    assert text.endswith("use kafka.acks=all, or delivery.guarantee=none")


def test_none_asks_the_leader_only_and_numbers_nothing_unless_it_is_told_to() -> None:
    producer = guaranteed("none").producer
    assert (producer.acks, producer.enable_idempotence) == (1, False)
    assert guaranteed("none", kafka__acks="0").producer.acks == 0
    assert guaranteed("none", kafka__acks="all").producer.enable_idempotence is False
    numbered = guaranteed("none", kafka__enable__idempotence="true").producer
    assert (numbered.acks, numbered.enable_idempotence) == (-1, True)


def test_exactly_once_has_a_quarter_of_an_hour_for_a_batch_and_names_of_its_own() -> None:
    options = guaranteed("exactly-once")
    assert options.exactly_once == ExactlyOnce()
    assert (options.producer.transaction_timeout_ms, options.producer.enable_idempotence) == (900_000, True)
    assert options.producer.transactional_id is None
    assert guaranteed("exactly-once", kafka__transaction__timeout__ms="60000").producer.transaction_timeout_ms == 60_000


def test_the_names_and_the_commit_log_may_be_chosen() -> None:
    options = guaranteed(
        "exactly-once",
        transactional__id__prefix="team.a",
        commit__log__topic="team.a-commits",
        commit__log__partitions="3",
        commit__log__replication__factor="2",
        commit__log__start="17",
    )
    assert options.exactly_once == ExactlyOnce("team.a", CommitLogSettings("team.a-commits", 3, 2), 17)


def test_one_name_tells_apart_the_sinks_of_a_query() -> None:
    named = guaranteed("exactly-once", sink__name="orders").exactly_once
    assert named == ExactlyOnce("spark-kafka-sink-orders", CommitLogSettings("__spark_kafka_sink_commits-orders"))
    both = guaranteed("exactly-once", sink__name="b", transactional__id__prefix="team.a", commit__log__topic="log").exactly_once
    assert both == ExactlyOnce("team.a-b", CommitLogSettings("log-b"))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sink.name", "a b", "'a b' is not 1 to 40 letters"),
        ("transactional.id.prefix", "", "'' is not 1 to 200 letters"),
        ("transactional.id.prefix", "a b", "'a b' is not"),
        ("commit.log.topic", "a/b", ""),
        ("commit.log.partitions", "0", "'0' is not a whole number from 1"),
        ("commit.log.replication.factor", "0", "'0' is not a whole number from 1 to 32767"),
        ("commit.log.replication.factor", "three", "'three' is not"),
        ("commit.log.start", "-1", "'-1' is not a whole number from 0"),
    ],
)
def test_a_setting_of_the_commit_log_that_cannot_be_is_refused(name: str, value: str, text: str) -> None:
    assert f"option {name}: {text}" in refused(EXACTLY_ONCE, **{name: value})


@pytest.mark.parametrize("guarantee", ["none", "at-least-once"])
def test_a_setting_of_exactly_once_alone_is_given_for_nothing(guarantee: str) -> None:
    options = {**SERVERS, "delivery.guarantee": guarantee}
    text = refused(options, commit__log__start="3")
    assert text.endswith("option commit.log.start: requires delivery.guarantee=exactly-once")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("kafka.acks", "1", "transactions need kafka.acks=all"),
        ("kafka.enable.idempotence", "false", "transactions need kafka.enable.idempotence=true"),
        ("kafka.retries", "0", "must be more than 0 with delivery.guarantee=exactly-once"),
        ("kafka.max.in.flight.requests.per.connection", "6", "must be at most 5 with delivery.guarantee=exactly-once"),
    ],
)
def test_what_transactions_need_is_not_given_up(name: str, value: str, text: str) -> None:
    assert text in refused(EXACTLY_ONCE, **{name: value})


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_tasks_never_share_a_transactional_id(guarantee: str) -> None:
    text = refused({**SERVERS, "delivery.guarantee": guarantee}, kafka__transactional__id="mine")
    assert text.startswith(
        "[OPTION] option kafka.transactional.id: tasks must not share one: use delivery.guarantee=exactly-once"
    )
    assert "transactional.id.prefix" in text
    assert "mine" not in text


def test_a_batch_must_not_begin_before_the_one_before_is_committed() -> None:
    text = refused(EXACTLY_ONCE, asyncProgressTrackingEnabled="true")
    assert "option asyncProgressTrackingEnabled: cannot be combined with delivery.guarantee=exactly-once" in text
    assert sink_options({**EXACTLY_ONCE, "asyncProgressTrackingEnabled": "false"}) == sink_options(EXACTLY_ONCE)
