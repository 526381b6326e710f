"""Which id of a topic is believed, and when it is certain that the topic was made again."""

from __future__ import annotations

import uuid

from spark_kafka_sink.client.topic_ids import CONFIRMED_AFTER_MS, TopicIds

OLD, NEW, NEWER = (uuid.UUID(int=number) for number in (1, 2, 3))


def told(*answers: tuple[uuid.UUID | None, str, int]) -> TopicIds:
    """After these answers: an id, who said it, and when in ms."""
    ids = TopicIds()
    for answer in answers:
        ids.take(*answer)
    return ids


def test_the_id_of_a_topic_that_is_gone_is_not_believed_again() -> None:
    ids = TopicIds()
    assert ids.take(OLD, "one", 0)
    assert ids.take(NEW, "one", 1)
    assert not ids.take(OLD, "two", 2)
    assert ids.take(NEW, "one", 3)
    assert ids.take(NEWER, "one", 4)
    assert not ids.take(NEW, "one", 5)


def test_an_answer_without_an_id_changes_nothing() -> None:
    ids = told((OLD, "one", 0), (None, "two", 1))
    assert ids.take(OLD, "one", 2)
    assert not ids.is_made_again(1)


def test_a_topic_that_always_had_one_id_was_not_made_again() -> None:
    assert not told((OLD, "one", 0), (OLD, "two", 10 * CONFIRMED_AFTER_MS)).is_made_again(1)


def test_one_answer_is_not_enough() -> None:
    assert not told((OLD, "one", 0), (NEW, "one", 1)).is_made_again(1)


def test_of_two_brokers_both_have_to_say_it() -> None:
    assert not told((OLD, "one", 0), (NEW, "one", 1), (NEW, "one", 2)).is_made_again(2)
    assert told((OLD, "one", 0), (NEW, "one", 1), (NEW, "two", 2)).is_made_again(2)


def test_the_only_broker_of_a_cluster_has_to_say_it_twice() -> None:
    assert told((OLD, "one", 0), (NEW, "one", 1), (NEW, "one", 2)).is_made_again(1)


def test_one_of_several_brokers_has_to_say_it_for_a_while() -> None:
    assert not told((OLD, "one", 0), (NEW, "one", 1), (NEW, "one", CONFIRMED_AFTER_MS)).is_made_again(3)
    assert told((OLD, "one", 0), (NEW, "one", 1), (NEW, "one", CONFIRMED_AFTER_MS + 1)).is_made_again(3)


def test_a_broker_that_says_otherwise_begins_it_anew() -> None:
    ids = told((OLD, "one", 0), (NEW, "one", 1), (NEW, "two", 2), (OLD, "three", 3))
    assert not ids.is_made_again(3)
    ids.take(NEW, "one", CONFIRMED_AFTER_MS)
    assert not ids.is_made_again(3)
    ids.take(NEW, "two", CONFIRMED_AFTER_MS + 1)
    assert ids.is_made_again(3)


def test_each_further_id_has_to_be_confirmed() -> None:
    assert not told((OLD, "one", 0), (NEW, "one", 1), (NEW, "two", 2), (NEWER, "one", 3)).is_made_again(2)
