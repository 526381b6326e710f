"""BrokerAnswers: an error text says who was asked since when, and what each said."""

from __future__ import annotations

from spark_kafka_sink.client.broker_answers import _MOST, BrokerAnswers


def test_nobody_was_asked() -> None:
    assert BrokerAnswers().about("orders", 0) == ""


def test_each_broker_is_named_with_its_last_words_and_how_often_they_came() -> None:
    answers = BrokerAnswers()
    for _ in range(12):
        answers.failed("a:1", "connection refused")
    answers.answered("b:2", {"orders": 3})
    assert answers.about("orders", 0) == "a:1: connection refused (12 times); b:2: UNKNOWN_TOPIC_OR_PARTITION"


def test_other_words_begin_a_new_count() -> None:
    answers = BrokerAnswers()
    for error in ("timed out", "refused", "refused"):
        answers.failed("a:1", error)
    assert answers.about("orders", 0) == "a:1: refused (2 times)"


def test_a_broker_that_answers_has_not_failed() -> None:
    answers = BrokerAnswers()
    answers.failed("a:1", "refused")
    answers.answered("a:1", {"orders": 5})
    answers.answered("a:1", {"orders": 0})
    assert answers.about("orders", 0) == ""


def test_what_was_said_of_other_topics_is_left_out() -> None:
    answers = BrokerAnswers()
    answers.answered("a:1", {"orders": 3, "payments": 5})
    assert answers.about("payments", 0) == "a:1: LEADER_NOT_AVAILABLE"


def test_what_was_said_before_the_mark_is_left_out() -> None:
    answers = BrokerAnswers()
    answers.failed("a:1", "refused")
    mark = answers.mark()
    assert answers.about("orders", mark) == ""
    answers.failed("b:2", "refused")
    assert answers.about("orders", mark) == "b:2: refused"


def test_the_oldest_is_forgotten_first() -> None:
    answers = BrokerAnswers()
    for i in range(_MOST + 1):
        answers.failed(f"b{i}:1", "refused")
    said = answers.about("orders", 0).split("; ")
    assert (len(said), said[0], said[-1]) == (_MOST, "b1:1: refused", f"b{_MOST}:1: refused")
