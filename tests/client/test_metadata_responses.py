"""BrokerResponses: an error text names the brokers asked since a mark, and the last response of each."""

from __future__ import annotations

from spark_kafka_sink.client.metadata import MAX_NAMED, MAX_RESPONSES, BrokerResponses


def test_nobody_was_asked() -> None:
    assert BrokerResponses().about("orders", 0) == ""


def test_each_broker_is_named_with_its_last_words_and_how_often_they_came() -> None:
    responses = BrokerResponses()
    for _ in range(12):
        responses.failed("a:1", "connection refused")
    responses.answered("b:2", {"orders": "UNKNOWN_TOPIC_OR_PARTITION"})
    assert responses.about("orders", 0) == "a:1: connection refused (12 times); b:2: UNKNOWN_TOPIC_OR_PARTITION"


def test_other_words_begin_a_new_count() -> None:
    responses = BrokerResponses()
    for error in ("timed out", "refused", "refused"):
        responses.failed("a:1", error)
    assert responses.about("orders", 0) == "a:1: refused (2 times)"


def test_a_broker_that_answers_has_not_failed() -> None:
    responses = BrokerResponses()
    responses.failed("a:1", "refused")
    responses.answered("a:1", {"orders": "LEADER_NOT_AVAILABLE"})
    responses.answered("a:1", {"orders": None})
    assert responses.about("orders", 0) == ""


def test_what_was_said_of_other_topics_is_left_out() -> None:
    responses = BrokerResponses()
    responses.answered("a:1", {"orders": "UNKNOWN_TOPIC_OR_PARTITION", "payments": "LEADER_NOT_AVAILABLE"})
    assert responses.about("payments", 0) == "a:1: LEADER_NOT_AVAILABLE"


def test_what_was_said_before_the_mark_is_left_out() -> None:
    responses = BrokerResponses()
    responses.failed("a:1", "refused")
    mark = responses.mark()
    assert responses.about("orders", mark) == ""
    responses.failed("b:2", "refused")
    assert responses.about("orders", mark) == "b:2: refused"


def test_who_owes_an_answer_is_named_until_it_comes() -> None:
    responses = BrokerResponses()
    responses.asking("a:1", "being connected to")
    assert responses.about("orders", responses.mark()) == "a:1: being connected to"
    responses.asking("a:1", "no response yet")
    assert responses.about("orders", responses.mark()) == "a:1: no response yet"
    responses.answered("a:1", {})
    assert responses.about("orders", 0) == ""
    responses.failed("b:2", "refused")
    responses.asking("b:2", "being connected to")
    assert responses.about("orders", 0) == "b:2: refused; b:2: being connected to"
    responses.failed("b:2", "refused")
    assert responses.about("orders", 0) == "b:2: refused (2 times)"


def test_of_very_many_brokers_the_last_are_named_and_the_others_counted() -> None:
    responses = BrokerResponses()
    for i in range(MAX_NAMED + 3):
        responses.failed(f"b{i}:1", "refused")
    said = responses.about("orders", 0).split("; ")
    assert (said[0], said[-2:]) == ("b3:1: refused", [f"b{MAX_NAMED + 2}:1: refused", "and 3 earlier"])


def test_the_oldest_is_forgotten_first() -> None:
    responses = BrokerResponses()
    for i in range(MAX_RESPONSES + 1):
        responses.failed(f"b{i}:1", "refused")
    assert responses.about("orders", 0).endswith(f"; b{MAX_RESPONSES}:1: refused; and {MAX_RESPONSES - MAX_NAMED} before")
