"""Arrow batches are held back for topics with many partitions, and nothing of them gets lost, out of order or miscounted."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import RecordError
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark import gathering
from spark_kafka_sink.spark.columns import TopicRecords
from spark_kafka_sink.spark.gathering import Gatherer


class Owner:
    """Keeps what each append to its scopes brought; `wanted` rows make one worth it."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.appends: list[tuple[str, list[bytes]]] = []
        self.refuse_row: int | None = None

    def append(self, topic: str, columns: RecordColumns) -> None:
        if self.refuse_row is not None:
            raise RecordError("refused", row=self.refuse_row)
        assert columns.value is not None
        self.appends.append((topic, columns.value.cast(pa.binary()).to_pylist()))

    def rows_per_append(self, topic: str) -> int:
        return self.wanted


class Scope(SendScope):
    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def append(self, topic: str, columns: RecordColumns) -> None:
        self._owner.append(topic, columns)

    def rows_per_append(self, topic: str) -> int:
        return self._owner.rows_per_append(topic)


def gatherer(owner: Owner, linger_ms: int = 3_600_000, clock: Callable[[], float] = lambda: 0.0) -> Gatherer:
    return Gatherer(Scope(owner), linger_ms, clock)


def records(*values: bytes, topic: str = "t", large: bool = False) -> TopicRecords:
    return TopicRecords(topic, RecordColumns(len(values), value=pa.array(values, pa.large_binary() if large else pa.binary())))


def test_with_few_partitions_every_batch_is_appended_at_once() -> None:
    owner = Owner(wanted=2)
    gathered = gatherer(owner)
    gathered.add(records(b"a", b"b"), 0)
    gathered.add(records(b"c", b"d"), 2)
    assert owner.appends == [("t", [b"a", b"b"]), ("t", [b"c", b"d"])]


def test_with_many_partitions_batches_are_put_together_until_there_are_enough_rows() -> None:
    owner = Owner(wanted=3)
    gathered = gatherer(owner)
    for row, value in enumerate([b"a", b"b", b"c", b"d"]):
        gathered.add(records(value), row)
    assert owner.appends == [("t", [b"a", b"b", b"c"])]
    gathered.finish()
    assert owner.appends[1:] == [("t", [b"d"])]


def test_a_large_batch_is_appended_as_it_is_after_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_BYTES", 100)
    owner = Owner(wanted=1000)
    gathered = gatherer(owner)
    gathered.add(records(b"a"), 0)
    gathered.add(records(b"x" * 200), 1)
    assert owner.appends == [("t", [b"a"]), ("t", [b"x" * 200])]


def test_all_topics_together_hold_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_BYTES", 100)
    owner = Owner(wanted=1000)
    gathered = gatherer(owner)
    for number in range(3):
        gathered.add(records(b"x" * 40, topic=f"t{number}"), number)
    assert [topic for topic, _ in owner.appends] == ["t0", "t1", "t2"]


def test_nothing_is_held_longer_than_the_linger_time_once_something_comes() -> None:
    owner = Owner(wanted=1000)
    times = iter([0.0, 0.0, 0.9, 0.9, 1.0, 1.0])
    gathered = gatherer(owner, linger_ms=1000, clock=lambda: next(times))
    for number in range(2):
        gathered.add(records(b"a", topic=f"t{number}"), number)
    assert owner.appends == []
    gathered.add(records(b"a", topic="t2"), 2)
    assert [topic for topic, _ in owner.appends] == ["t0", "t1", "t2"]


def test_without_linger_nothing_is_held() -> None:
    owner = Owner(wanted=1000)
    gatherer(owner, linger_ms=0).add(records(b"a"), 0)
    assert owner.appends == [("t", [b"a"])]


def test_what_is_held_keeps_the_batch_that_it_was_cut_from_no_longer_alive() -> None:
    before = pa.total_allocated_bytes()
    gathered = gatherer(Owner(wanted=1000))
    for number in range(10):
        whole = pa.array([b"x" * 1000] * 1000, pa.binary())
        gathered.add(TopicRecords("t", RecordColumns(2, value=whole.slice(5, 2))), number)
    del whole
    assert pa.total_allocated_bytes() - before < 100_000


def test_columns_of_another_type_are_not_put_together_with_those_before() -> None:
    owner = Owner(wanted=10)
    gathered = gatherer(owner)
    gathered.add(records(b"a"), 0)
    gathered.add(records(b"b", large=True), 1)
    gathered.finish()
    assert owner.appends == [("t", [b"a"]), ("t", [b"b"])]


def test_a_refused_row_is_named_as_the_tasks_row() -> None:
    """Rows 5 to 7 of the task were another topic's; the third of what was put together is row 9."""
    owner = Owner(wanted=4)
    gathered = gatherer(owner)
    gathered.add(records(b"a", b"b"), 3)
    owner.refuse_row = 3
    with pytest.raises(RecordError) as caught:
        gathered.add(records(b"c", b"d"), 8)
    assert caught.value.__notes__ == ["That is row 9 of the task, counted from 0."]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("tu"), st.lists(st.binary(max_size=3), min_size=1, max_size=5))), st.integers(0, 12))
def test_each_topics_rows_are_appended_once_and_in_order(batches: list[tuple[str, list[bytes]]], wanted: int) -> None:
    owner = Owner(wanted)
    gathered = gatherer(owner)
    for topic, values in batches:
        gathered.add(records(*values, topic=topic), 0)
    gathered.finish()
    for topic in "tu":
        appended = [value for name, values in owner.appends if name == topic for value in values]
        assert appended == [value for name, values in batches if name == topic for value in values]
