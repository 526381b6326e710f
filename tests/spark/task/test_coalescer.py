"""Arrow batches are held back for topics with many partitions, and nothing of them gets lost, out of order or miscounted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import RecordError
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.task import coalescer
from spark_kafka_sink.spark.task.coalescer import ArrowBatchCoalescer
from spark_kafka_sink.spark.task.columns import TopicRecords


def coalesced(
    each: Iterable[TopicRecords], enough: int, linger_ms: int = 3_600_000, clock: Callable[[], float] = lambda: 0.0
) -> Iterator[tuple[str, list[bytes]]]:
    """What is to be appended at a time, where `enough` rows make an append worth it."""
    for rows in ArrowBatchCoalescer(lambda topic: enough, linger_ms, clock).coalesced(each):
        value = rows.columns().value
        assert value is not None
        yield rows.topic, value.cast(pa.binary()).to_pylist()


def records(*values: bytes, topic: str = "t", large: bool = False) -> TopicRecords:
    return TopicRecords(topic, RecordColumns(len(values), value=pa.array(values, pa.large_binary() if large else pa.binary())))


def test_with_few_partitions_every_batch_is_appended_at_once() -> None:
    found = coalesced([records(b"a", b"b"), records(b"c", b"d")], enough=2)
    assert list(found) == [("t", [b"a", b"b"]), ("t", [b"c", b"d"])]


def test_with_many_partitions_batches_are_put_together_until_there_are_enough_rows() -> None:
    found = coalesced([records(value) for value in (b"a", b"b", b"c", b"d")], enough=3)
    assert list(found) == [("t", [b"a", b"b", b"c"]), ("t", [b"d"])]


def test_a_large_batch_is_appended_as_it_is_after_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescer, "MAX_BYTES", 100)
    found = coalesced([records(b"a"), records(b"x" * 200)], enough=1000)
    assert list(found) == [("t", [b"a"]), ("t", [b"x" * 200])]


def test_all_topics_together_hold_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescer, "MAX_BYTES", 100)

    def three() -> Iterator[TopicRecords]:
        yield from (records(b"x" * 40, topic=f"t{number}") for number in range(3))
        pytest.fail("nothing was appended before more was asked for")

    found = coalesced(three(), enough=1000)
    assert [next(found)[0] for _ in range(3)] == ["t0", "t1", "t2"]


def test_nothing_is_held_longer_than_the_linger_time_once_something_comes() -> None:
    times = iter([0.0, 0.0, 0.9, 0.9, 1.0, 1.0])
    given = iter([records(b"a", topic=f"t{number}") for number in range(4)])
    found = coalesced(given, enough=1000, linger_ms=1000, clock=lambda: next(times))
    assert [next(found)[0] for _ in range(3)] == ["t0", "t1", "t2"]
    assert next(given).topic == "t3"


def test_what_is_held_keeps_the_batch_that_it_was_cut_from_no_longer_alive() -> None:
    before = pa.total_allocated_bytes()
    held: list[int] = []

    def slices() -> Iterator[TopicRecords]:
        for _ in range(10):
            whole = pa.array([b"x" * 1000] * 1000, pa.binary())
            yield TopicRecords("t", RecordColumns(2, value=whole.slice(5, 2)))
            del whole
        held.append(pa.total_allocated_bytes() - before)

    (appended,) = coalesced(slices(), enough=1000)
    assert len(appended[1]) == 20
    assert held[0] < 100_000 + 1_010_000  # the last slice is still given


def test_columns_of_another_type_are_not_put_together_with_those_before() -> None:
    found = coalesced([records(b"a"), records(b"b", large=True)], enough=10)
    assert list(found) == [("t", [b"a"]), ("t", [b"b"])]


def test_a_refused_row_is_named_as_the_tasks_row() -> None:
    """Rows 5 to 7 of the task were another topic's; the fourth of what was put together is row 9."""
    given = [replace(records(b"a", b"b"), first_row=3), replace(records(b"c", b"d"), first_row=8)]
    (rows,) = ArrowBatchCoalescer(lambda topic: 4, 1000).coalesced(given)
    error = RecordError("refused", row=3)
    rows.add_row_of_task(error)
    assert error.__notes__ == ["That is row 9 of the data, counted from 0."]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("tu"), st.lists(st.binary(max_size=3), min_size=1, max_size=5))), st.integers(0, 12))
def test_each_topics_rows_are_appended_once_and_in_order(batches: list[tuple[str, list[bytes]]], enough: int) -> None:
    found = list(coalesced([records(*values, topic=topic) for topic, values in batches], enough))
    for topic in "tu":
        appended = [value for name, values in found if name == topic for value in values]
        assert appended == [value for name, values in batches if name == topic for value in values]


class TestSmallBatches:
    """An append has a fixed cost, so batches of few rows go together, however few partitions there are."""

    @staticmethod
    def sizes(count: int, rows: int, row_bytes: int = 1, linger_ms: int = 1000) -> list[int]:
        """The rows of each append, where `count` Arrow batches arrive in a task."""
        batches = [records(*[b"x" * row_bytes] * rows) for _ in range(count)]
        return [len(values) for _, values in coalesced(batches, enough=320, linger_ms=linger_ms)]

    def test_the_first_goes_at_once_and_the_others_four_thousand_rows_at_a_time(self) -> None:
        assert self.sizes(12, 1000) == [1000, 4000, 4000, 3000]

    def test_four_mebibytes_are_enough(self) -> None:
        assert self.sizes(8, 1000, 1500) == [1000, 3000, 3000, 1000]

    def test_half_of_that_is_not_combined(self) -> None:
        assert self.sizes(4, 1000, 2100) == [1000] * 4

    def test_each_topic_has_its_first(self) -> None:
        both = [records(*[b"x"] * 1000, topic=topic) for topic in "tutu"]
        assert [(topic, len(values)) for topic, values in coalesced(both, enough=320)] == [
            ("t", 1000),
            ("u", 1000),
            ("t", 1000),
            ("u", 1000),
        ]

    def test_not_without_linger(self) -> None:
        assert self.sizes(4, 1000, linger_ms=0) == [1000] * 4


def test_rows_that_are_most_of_their_batch_are_held_without_a_copy() -> None:
    value = pa.array([b"x" * 1000] * 1000, pa.binary())
    kept = replace(records(b""), columns=RecordColumns(1000, value=value), is_most_of_batch=True)
    before = pa.total_allocated_bytes()
    held = ArrowBatchCoalescer(lambda topic: 3000, 1000).coalesced(iter([kept, kept]))
    rows = next(held)
    assert pa.total_allocated_bytes() - before < 100_000
    assert rows.columns().num_records == 2000
