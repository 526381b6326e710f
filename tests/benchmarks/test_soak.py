"""What a soak run counts as a failure. The run itself takes minutes: `make soak`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak import samples
from benchmarks.soak.judge import Seen
from benchmarks.soak.samples import Sample
from benchmarks.soak.stream import KEYS, committed_rows


def seen(*rows: int) -> Seen:
    found = Seen()
    found.add(np.array(rows, np.int64))
    return found


def test_each_row_once_is_right_whatever_the_order_of_the_keys() -> None:
    assert seen(1, 0, 3, 2).problems(4, batch_rows=2) == []


def test_a_missing_row_is_lost() -> None:
    (problem,) = seen(0, 2).problems(4, batch_rows=2)
    assert problem == "2 rows lost, such as 1, 3"


def test_a_row_that_is_read_twice_is_doubled() -> None:
    found = seen(0, 1)
    found.add(np.array([1], np.int64))
    assert found.problems(2, batch_rows=2) == ["1 rows written twice or more, such as 1"]


def test_an_earlier_row_of_the_same_key_is_out_of_order() -> None:
    assert seen(KEYS, 0, *range(1, KEYS)).problems(KEYS + 1, batch_rows=2) == ["1 rows out of order within their key"]


def test_the_micro_batch_that_ran_when_the_query_was_stopped_may_be_there() -> None:
    assert seen(*range(6)).problems(4, batch_rows=2) == []
    (problem,) = seen(*range(7)).problems(4, batch_rows=2)
    assert "1 rows read that no committed or running micro-batch has" in problem


def used(seconds: float, rss_mib: float = 100.0, threads: int = 10, files: int = 20) -> Sample:
    return Sample(seconds, "exactly-once", "worker", 2, rss_mib, threads, files)


def test_flat_figures_are_right() -> None:
    assert samples.problems([used(10, rss_mib=20), used(70), used(130), used(190, rss_mib=109.0, threads=12)]) == []


@pytest.mark.parametrize(
    ("late", "problem"),
    [
        (used(190, rss_mib=111.0), "exactly-once: memory of worker grew from 100 to 111 MiB"),
        (used(190, threads=20), "exactly-once: threads of worker grew from 10 to 20"),
        (used(190, files=31), "exactly-once: files of worker grew from 20 to 31"),
    ],
)
def test_growth_after_the_second_minute_is_a_problem(late: Sample, problem: str) -> None:
    assert samples.problems([used(70), used(130), late]) == [problem]


def test_processes_that_were_not_seen_in_time_are_a_problem() -> None:
    (problem,) = samples.problems([used(10), used(70)])
    assert problem == "exactly-once: no worker was seen in the second minute, or none later"


def test_committed_rows_are_those_of_the_last_committed_micro_batch_and_all_before(tmp_path: Path) -> None:
    assert committed_rows(tmp_path, rows=500) == 0
    (tmp_path / "commits").mkdir()
    for name in ("9", "10", ".10.crc", "11.tmp"):
        (tmp_path / "commits" / name).touch()
    assert committed_rows(tmp_path, rows=500) == 5_500
