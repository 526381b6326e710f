"""One outcome for a batch's records: who is told of it, in what order, and where each of them lies after a split."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import BrokerError, KafkaSinkError
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, RecordThunk
from tests.examples import examples
from tests.producer.told import Told, future

# Of a batch: how many records each append added to it.
APPENDS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def batch_of(appends: list[int], told: Told) -> tuple[ProduceResult, list[RecordFuture]]:
    """A batch's result, and the futures of its records in order."""
    result, futures = ProduceResult("t", 3), list[RecordFuture]()
    for count in appends:
        new = [future(told.of(len(futures) + at)) for at in range(count)]
        result.attach(RecordThunk(new, callbacks=True), len(futures))
        futures += new
    return result, futures


def offsets(futures: list[RecordFuture]) -> list[int]:
    return [each.result(0).offset for each in futures]


@given(APPENDS, st.integers(-1, 2**62))
def test_each_record_is_told_its_own_offset_in_order(appends: list[int], base_offset: int) -> None:
    told = Told()
    result, futures = batch_of(appends, told)
    assert not result.done
    result.acked(base_offset, -1)
    assert told.records == list(range(sum(appends)))
    assert offsets(futures) == [-1 if base_offset < 0 else base_offset + row for row in range(sum(appends))]
    assert {each.result(0).partition for each in futures} == {3}
    assert result.done


@settings(max_examples=examples(100))
@given(st.data(), APPENDS)
def test_after_any_split_each_record_has_the_outcome_of_its_own_part(data: st.DataObject, appends: list[int]) -> None:
    """Split anywhere, and the parts again; the parts end in any order, some of them in an error."""
    told, total = Told(), sum(appends)
    result, futures = batch_of(appends, told)
    parts = [(0, total, result)]
    for _ in range(data.draw(st.integers(1, 3))):
        start, stop, split = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        cuts = sorted(data.draw(st.sets(st.integers(start + 1, stop - 1)))) if stop - start > 1 else []
        bounds = [start, *cuts, stop]
        new = split.split([after - before for before, after in pairwise(bounds)])
        parts += [(*between, part) for between, part in zip(pairwise(bounds), new, strict=True)]
    want: list[tuple[int, KafkaSinkError | None]] = [(0, None)] * total
    order: list[int] = []
    for start, stop, part in data.draw(st.permutations(parts)):
        assert not result.done
        error = BrokerError("refused") if data.draw(st.booleans()) else None
        part.failed(error) if error else part.acked(1000 * start, -1)
        want[start:stop] = [(1000 * start + row if error is None else -1, error) for row in range(stop - start)]
        order += range(start, stop)
    assert result.done
    assert told.records == order
    assert [(metadata.offset, error) for _, metadata, error in sorted(told.ends, key=lambda end: str(end[0]).zfill(3))] == want
    assert [each.exception(0) for each in futures] == [error for _, error in want]


def test_nobody_finds_it_done_before_the_callbacks_have_run() -> None:
    result = ProduceResult("t", 0)
    seen: list[bool] = []
    result.attach(RecordThunk([future(lambda metadata, error: seen.append(result.done))], callbacks=True), 0)
    result.acked(0, -1)
    assert seen == [False]
    assert result.done


class Failing:
    """Rows whose interest ends in an error."""

    count = 1

    def settled(self) -> None: ...

    def assigned(self, result: ProduceResult, first: int) -> None: ...

    def completed(self, result: ProduceResult, first: int) -> None:
        raise ZeroDivisionError

    def split(self, count: int) -> tuple[Failing, Failing]:
        return self, self


def test_whoever_raises_at_hearing_of_it_keeps_nobody_else_from_it(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    result = ProduceResult("t", 0)
    result.attach(Failing(), 0)
    result.attach(RecordThunk([future(told.of("next"))], callbacks=True), 1)
    with caplog.at_level(logging.ERROR):
        result.failed(BrokerError("refused"))
    assert told.records == ["next"]
    assert "t partition 0: a delivery callback raised an exception" in caplog.text
    assert result.done


def test_a_records_timestamp_is_the_brokers_where_it_has_one() -> None:
    created, appended = future(), future()
    for each, log_append_time in ((created, -1), (appended, 77)):
        result = ProduceResult("t", 0)
        result.attach(RecordThunk([each], callbacks=False), 0)
        result.acked(0, log_append_time)
    assert (created.result(0).timestamp, appended.result(0).timestamp) == (5, 77)


def test_an_outcome_that_comes_twice_is_told_once() -> None:
    """As an append and the sender's thread may both find that the producer has ended."""

    class Counting(Failing):
        calls = 0

        def completed(self, result: ProduceResult, first: int) -> None:
            self.calls += 1

    result, counting = ProduceResult("t", 0), Counting()
    result.attach(counting, 0)
    result.failed(BrokerError("refused"))
    result.failed(BrokerError("refused"))
    assert counting.calls == 1
