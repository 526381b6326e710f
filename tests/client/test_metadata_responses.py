"""BrokerResponses: an error text names the brokers asked since a mark, and the last response of each."""

from __future__ import annotations

from spark_kafka_sink.client.metadata import MAX_NAMED, MAX_RESPONSES, BrokerResponses


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
    assert responses.about("orders", 0).endswith(f"; b{MAX_RESPONSES}:1: refused; and {MAX_RESPONSES - MAX_NAMED} earlier")
