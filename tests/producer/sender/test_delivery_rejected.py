"""A batch's result without some of its records: whoever waits for single ones hears of each what became of it, once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from tests.examples import examples

Said = tuple[ProduceResult, int]  # the result, and the place in its batch


class Waiters:
    """A thunk for records that are known by their numbers."""

    def __init__(self, records: Sequence[int], places: dict[int, Said], told: list[int]) -> None:
        self._records, self._places, self._told = records, places, told
        self.count = len(records)

    def settled(self) -> None: ...

    def assigned(self, result: ProduceResult, first: int) -> None:
        for place, record in enumerate(self._records, first):
            self._places[record] = (result, place)

    def completed(self, result: ProduceResult, first: int) -> None:
        assert all(self._places[record] == (result, place) for place, record in enumerate(self._records, first))
        self._told.extend(self._records)

    def split(self, count: int) -> tuple[Waiters, Waiters]:
        return tuple(Waiters(part, self._places, self._told) for part in (self._records[:count], self._records[count:]))  # type: ignore[return-value]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=8), st.data())
def test_the_rejected_fail_at_once_and_the_others_keep_their_order(runs: list[tuple[int, bool]], data: st.DataObject) -> None:
    """Runs of records with and without somebody who waits for them."""
    whole, places, told, count = ProduceResult("t", 0), dict[int, Said](), list[int](), 0
    for length, waited_for in runs:
        if waited_for:
            whole.attach(Waiters(range(count, count + length), places, told), count)
        count += length
    bad = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    errors = {row: KafkaSinkError(f"{row} is bad") for row in bad}
    rest = whole.without(errors, count)
    waited = set(places)
    assert told == [row for row in bad if row in waited]
    before = whole.done
    rest.acked(100, -1)
    assert (before, whole.done) == (False, True)
    assert sorted(told) == sorted(waited)
    good = [row for row in range(count) if row not in errors]
    for row in waited:
        result, place = places[row]
        assert (result.error, place) == ((errors[row], 0) if row in errors else (None, good.index(row)))
        assert result.done
        assert row in errors or result is rest
