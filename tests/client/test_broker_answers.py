"""BrokerAnswers: an error text says who was asked since when, and what each said."""

from __future__ import annotations

from spark_kafka_sink.client.broker_answers import _MOST, _MOST_NAMED, BrokerAnswers


def test_nobody_was_asked() -> None:
    assert BrokerAnswers().about("orders", 0) == ""


def test_each_broker_is_named_with_its_last_words_and_how_often_they_came() -> None:
    answers = BrokerAnswers()
    for _ in range(12):
        answers.failed("a:1", "connection refused")
    answers.answered("b:2", {"orders": "UNKNOWN_TOPIC_OR_PARTITION"})
    assert answers.about("orders", 0) == "a:1: connection refused (12 times); b:2: UNKNOWN_TOPIC_OR_PARTITION"


def test_other_words_begin_a_new_count() -> None:
    answers = BrokerAnswers()
    for error in ("timed out", "refused", "refused"):
        answers.failed("a:1", error)
    assert answers.about("orders", 0) == "a:1: refused (2 times)"


def test_a_broker_that_answers_has_not_failed() -> None:
    answers = BrokerAnswers()
    answers.failed("a:1", "refused")
    answers.answered("a:1", {"orders": "LEADER_NOT_AVAILABLE"})
    answers.answered("a:1", {"orders": None})
    assert answers.about("orders", 0) == ""


def test_what_was_said_of_other_topics_is_left_out() -> None:
    answers = BrokerAnswers()
    answers.answered("a:1", {"orders": "UNKNOWN_TOPIC_OR_PARTITION", "payments": "LEADER_NOT_AVAILABLE"})
    assert answers.about("payments", 0) == "a:1: LEADER_NOT_AVAILABLE"


def test_what_was_said_before_the_mark_is_left_out() -> None:
    answers = BrokerAnswers()
    answers.failed("a:1", "refused")
    mark = answers.mark()
    assert answers.about("orders", mark) == ""
    answers.failed("b:2", "refused")
    assert answers.about("orders", mark) == "b:2: refused"


def test_who_owes_an_answer_is_named_until_it_comes() -> None:
    answers = BrokerAnswers()
    answers.asking("a:1", "being connected to")
    assert answers.about("orders", answers.mark()) == "a:1: being connected to"
    answers.asking("a:1", "no answer yet")
    assert answers.about("orders", answers.mark()) == "a:1: no answer yet"
    answers.answered("a:1", {})
    assert answers.about("orders", 0) == ""
    answers.failed("b:2", "refused")
    answers.asking("b:2", "being connected to")
    assert answers.about("orders", 0) == "b:2: refused; b:2: being connected to"
    answers.failed("b:2", "refused")
    assert answers.about("orders", 0) == "b:2: refused (2 times)"


def test_of_very_many_brokers_the_last_are_named_and_the_others_counted() -> None:
    answers = BrokerAnswers()
    for i in range(_MOST_NAMED + 3):
        answers.failed(f"b{i}:1", "refused")
    said = answers.about("orders", 0).split("; ")
    assert (said[0], said[-2:]) == ("b3:1: refused", [f"b{_MOST_NAMED + 2}:1: refused", "and 3 before"])


def test_the_oldest_is_forgotten_first() -> None:
    answers = BrokerAnswers()
    for i in range(_MOST + 1):
        answers.failed(f"b{i}:1", "refused")
    assert answers.about("orders", 0).endswith(f"; b{_MOST}:1: refused; and {_MOST - _MOST_NAMED} before")
