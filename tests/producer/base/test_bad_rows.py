"""Bad rows are found one by one; everything else is good, in order, in few attempts."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Collection

import pytest

from spark_kafka_sink.errors import MetadataTimeoutError, RecordError, SerializationError
from spark_kafka_sink.producer.base.bad_rows import BadRow, concerns_one_row, forget_frames, good_pieces
from tests.every import every


class Attempts:
    """Checks rows as an append does, one check after the other over all rows of a piece, and counts what it looked at."""

    def __init__(self, count: int, *bad: Collection[int]) -> None:
        self.count = count
        self.bad = [sorted(rows) for rows in bad]
        self.calls = 0
        self.rows = 0

    def __call__(self, start: int, stop: int) -> range:
        self.calls += 1
        self.rows += stop - start
        for check, rows in enumerate(self.bad):
            place = bisect_left(rows, start)
            if place < len(rows) and rows[place] < stop:
                row = rows[place] - start
                raise RecordError(f"topic t: row {row} of {stop - start}: check {check}", row=row, check=check)
        return range(start, stop)


def sorted_rows(attempts: Attempts) -> tuple[list[int], list[tuple[int, str]]]:
    """The good rows, and the bad ones with their messages, each in the order in which they were found."""
    good, bad = list[int](), list[tuple[int, str]]()
    for piece in good_pieces(attempts.count, attempts):
        if isinstance(piece, BadRow):
            bad.append((piece.row, piece.error.message))
            assert piece.error.facts["row"] == piece.row
        else:
            assert list(piece.result) == list(range(piece.start, piece.stop))
            good += piece.result
    return good, bad


def test_each_row_is_good_or_bad_once_and_in_order_whatever_check_finds_it() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        count = rng.choice([1, 2, 63, 64, 65, 130, 400])
        shares = [rng.choice([0, 0.01, 0.5, 1]) for _ in range(rng.randint(1, 4))]
        checks = [{row for row in range(count) if rng.random() < share} for share in shares]
        good, bad = sorted_rows(Attempts(count, *checks))
        assert [row for row, _ in bad] == sorted(set[int]().union(*checks))
        assert good == sorted(set(range(count)) - {row for row, _ in bad})


@pytest.mark.parametrize("bad", [range(0, 10_000, 2), range(10_000), range(5_000), range(0, 10_000, 100), [9_999], [0]], ids=str)
def test_the_cost_grows_with_the_rows_and_the_bad_rows_and_not_with_their_product(bad: Collection[int]) -> None:
    attempts = Attempts(10_000, bad)
    sorted_rows(attempts)
    assert attempts.calls <= 10 + 12 * min(len(bad), 10_000 - len(bad)) + len(bad)
    assert attempts.rows <= 4 * 10_000 + 130 * len(bad)


def test_an_attempt_that_was_made_already_is_not_made_again() -> None:
    attempts = Attempts(300, [7])
    with pytest.raises(RecordError) as raised:
        attempts(0, 300)
    pieces = list(good_pieces(300, attempts, raised.value))
    assert [piece.row for piece in pieces if isinstance(piece, BadRow)] == [7]
    assert attempts.calls == 5  # all, 0 to 7, 8 to 72, 72 to 200, 200 to 300


@every(
    "error",
    [
        lambda: SerializationError("a column of this type is not supported"),
        lambda: MetadataTimeoutError("no topic", row=3, buffered=0),
        lambda: RecordError("a row that the piece does not have", row=70),
        lambda: RecordError("neither", row=-1),
        lambda: RecordError("nor", row=True),
    ],
)
def test_an_error_about_all_rows_is_raised(error: Callable[[], SerializationError]) -> None:
    def attempt(start: int, stop: int) -> None:
        if start > 0:
            raise error()
        if stop > 20:
            raise RecordError("row 20", row=20)

    found = []
    with pytest.raises((SerializationError, MetadataTimeoutError, RecordError)) as raised:
        for piece in good_pieces(60, attempt):
            found.append(piece)
    assert len(found) == 2
    assert raised.value.message == error().message


def test_an_error_that_is_kept_does_not_keep_the_frames_of_the_call() -> None:
    try:
        try:
            raise ValueError("of a serializer")
        except ValueError as error:
            raise SerializationError("row 0", row=0) from error
    except SerializationError as error:
        kept = error
    assert concerns_one_row(kept)
    forget_frames(kept)
    assert kept.__traceback__ is None
    assert kept.__cause__ is not None
    assert kept.__cause__.__traceback__ is None
