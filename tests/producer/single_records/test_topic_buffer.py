"""Where single records of a topic wait: when there are enough, who may take them, and what an interrupt leaves."""

from __future__ import annotations

from itertools import count, takewhile

import pytest

from spark_kafka_sink.errors import RecordError, UsageError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.single_records.topic_buffer import (
    ALL_ROWS,
    MAX_BYTES,
    MAX_ROWS,
    MIN_BYTES,
    MIN_ROWS,
    BufferLimits,
    TopicBuffer,
)
from tests.producer.interrupts import Interrupt
from tests.producer.told import future, waiter

BUFFER_MEMORY = 32 << 20


def buffer(topics: int = 1) -> TopicBuffer:
    limits = BufferLimits(BUFFER_MEMORY)
    limits.share(topics)
    return TopicBuffer(waiter(), limits)


def add(
    buffer: TopicBuffer, value: bytes, size: int = 100, partition: int | None = None, headers: Headers = ()
) -> tuple[bool, bool]:
    return buffer.add(value, value, partition, 1, headers, future(), size, False)


def values(buffer: TopicBuffer) -> list[bytes | None]:
    return buffer.rows.values


def test_the_first_row_and_the_last_that_there_is_room_for_are_told() -> None:
    into = buffer()
    told = [add(into, b"x") for _ in range(MAX_ROWS)]
    assert told == [(True, False)] + [(False, False)] * (MAX_ROWS - 2) + [(False, True)]
    assert into.is_full()


def test_a_large_row_is_enough() -> None:
    assert add(buffer(), b"x", size=MAX_BYTES) == (True, True)


def test_the_more_topics_there_are_the_fewer_rows_each_of_them_buffers() -> None:
    limits = BufferLimits(BUFFER_MEMORY)
    for topics in (1, 10, 100, 1000, 100_000):
        limits.share(topics)
        assert limits.rows == MIN_ROWS or limits.rows * topics <= max(ALL_ROWS, MAX_ROWS * topics)
        assert limits.size == MIN_BYTES or limits.size * topics <= max(BUFFER_MEMORY, MAX_BYTES)
    assert (limits.rows, limits.size) == (MIN_ROWS, MIN_BYTES)
    into = buffer(topics=1000)
    assert [add(into, b"x")[1] for _ in range(MIN_ROWS)] == [False] * (MIN_ROWS - 1) + [True]


def test_what_is_put_back_comes_before_what_came_meanwhile() -> None:
    into = buffer()
    add(into, b"1")
    taken = into.take()
    add(into, b"2")
    assert into.put_back(taken) is None
    assert values(into) == [b"1", b"2"]
    assert into.unsent() == 2


def test_it_is_idle_once_what_was_taken_is_settled() -> None:
    into = buffer()
    assert into.is_idle()
    add(into, b"1")
    assert not into.is_idle()
    with into.draining:
        into.take()
        assert not into.is_idle()
        into.settled()
        assert not into.is_idle()
    assert into.is_idle()


def test_what_an_interrupt_left_taken_is_taken_again() -> None:
    into = buffer()
    for value in (b"1", b"2", b"3"):
        add(into, value)
    into.take().futures[1].fail(RecordError("no"))
    add(into, b"4")
    assert into.unsent() == 3
    assert into.take().values == [b"1", b"3", b"4"]
    assert into.unsent() == 3


def test_a_closed_one_takes_no_rows_and_says_why() -> None:
    into, error = buffer(), UsageError("closed")
    add(into, b"1")
    into.close(error)
    into.close(UsageError("again"))
    with pytest.raises(UsageError) as raised:
        add(into, b"2")
    assert raised.value is error
    assert into.put_back(into.take()) is None
    assert values(into) == [b"1"]


def test_after_the_end_which_has_the_rows_that_were_taken_too_nothing_can_be_put_back() -> None:
    into, error = buffer(), UsageError("ended")
    add(into, b"1")
    taken = into.take()
    add(into, b"2")
    newer = into.rows.futures
    assert into.end(error) == [*taken.futures, *newer]
    assert into.put_back(taken) is error
    assert values(into) == []


def test_an_interrupt_at_any_step_leaves_whole_rows() -> None:
    def interrupted(step: int) -> bool:
        into = buffer()
        add(into, b"1")
        with Interrupt(step) as interrupt:
            add(into, b"2", partition=3, headers=[("h", b"2")])
        add(into, b"3", partition=4, headers=[("h", b"3")])
        found = into.rows
        assert found.values in ([b"1", b"3"], [b"1", b"2", b"3"])
        assert found.keys == found.values
        assert len(found.futures) == len(found.timestamps) == len(found.values)
        numbers = {b"1": (-1, []), b"2": (3, [("h", b"2")]), b"3": (4, [("h", b"3")])}
        rows = zip(found.partitions, map(list, found.headers), strict=True)
        assert list(rows) == [numbers[value or b""] for value in found.values]
        return interrupt.struck

    assert sum(1 for _ in takewhile(interrupted, count(1))) > 10
