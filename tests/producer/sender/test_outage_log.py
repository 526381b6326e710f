"""When the log is told that records wait and nothing happens."""

from __future__ import annotations

from spark_kafka_sink.producer.sender.outage_log import WARN_AFTER_MS, WARN_EVERY_MS, News, SilenceWatch, Subject

WAITING, OVER, LEFT = News.WAITING, News.OVER, News.LEFT


def looks(watch: SilenceWatch, *subjects: Subject, begin_ms: int, end_ms: int) -> list[tuple[int, Subject, News, int]]:
    """What is told, and when, while these are waited for and looked at once a second."""
    return [(now_ms, *news) for now_ms in range(begin_ms, end_ms, 1000) for news in watch.look(subjects, now_ms)]


def test_a_broker_is_told_of_after_five_seconds_and_then_each_half_minute() -> None:
    told = looks(SilenceWatch(), 1, begin_ms=0, end_ms=70_000)
    assert [(when, ms) for when, _, _, ms in told] == [(5000, 5000), (35_000, 35_000), (65_000, 65_000)]
    assert {(subject, news) for _, subject, news, _ in told} == {(1, WAITING)}
    assert (WARN_AFTER_MS, WARN_EVERY_MS) == (5000, 30_000)


def test_each_sign_of_life_begins_the_five_seconds_anew() -> None:
    watch = SilenceWatch()
    for begin_ms in range(0, 60_000, 4000):
        assert looks(watch, 1, begin_ms=begin_ms, end_ms=begin_ms + 4000) == []
        watch.heard(1)


def test_that_it_is_over_is_told_once_and_with_how_long_it_was() -> None:
    watch = SilenceWatch()
    assert len(looks(watch, 1, begin_ms=0, end_ms=8000)) == 1
    watch.heard(1)
    assert looks(watch, 1, begin_ms=8000, end_ms=12_000) == [(8000, 1, OVER, 8000)]


def test_what_was_short_is_not_told_when_it_is_over() -> None:
    watch = SilenceWatch()
    looks(watch, 1, begin_ms=0, end_ms=4000)
    watch.heard(1)
    assert looks(watch, begin_ms=4000, end_ms=9000) == []


def test_where_nothing_waits_any_more_that_is_told_as_such() -> None:
    watch = SilenceWatch()
    looks(watch, 1, "t", begin_ms=0, end_ms=8000)
    assert looks(watch, begin_ms=8000, end_ms=12_000) == [(8000, 1, LEFT, 8000), (8000, "t", LEFT, 8000)]
    assert watch.is_quiet


def test_what_waits_again_later_has_its_own_five_seconds() -> None:
    watch = SilenceWatch()
    looks(watch, 1, begin_ms=0, end_ms=4000)
    looks(watch, begin_ms=4000, end_ms=6000)
    assert not looks(watch, 1, begin_ms=6000, end_ms=11_000)
    assert looks(watch, 1, begin_ms=11_000, end_ms=12_000)


def test_one_broker_that_answers_says_nothing_of_another() -> None:
    watch = SilenceWatch()
    told = []
    for now_ms in range(0, 20_000, 1000):
        watch.heard(1)
        told += watch.look([1, 2, "t"], now_ms)
    assert told == [(2, WAITING, 5000), ("t", WAITING, 5000)]
