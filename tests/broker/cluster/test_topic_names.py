"""Names that topics may have."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.topic_names import check_collision, check_name, check_topic_resource


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "-", "x" * 249])
def test_legal(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("٣", "'٣' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_illegal(name: str, words: str) -> None:
    with pytest.raises(ApiException) as refused:
        check_name(name)

    assert str(refused.value) == f"INVALID_TOPIC_EXCEPTION: Topic name is invalid: {words}"


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b", "a.b"), ("a._", "a_."), ("..x", "__x")])
def test_dots_and_underscores_collide(name: str, other: str) -> None:
    with pytest.raises(ApiException, match=f"Topic '{name}' collides with existing topic: {other}"):
        check_collision(name, ["else", other])


def test_others_do_not() -> None:
    check_collision("a.b", ["a-b", "a.c", "ab", "a.b"])


def test_configs_are_of_topics_with_a_name() -> None:
    with pytest.raises(ApiException, match=r"^INVALID_REQUEST: Default topic resources are not allowed\.$"):
        check_topic_resource("")
    with pytest.raises(ApiException, match="INVALID_TOPIC_EXCEPTION"):
        check_topic_resource("a b")
