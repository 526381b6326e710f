"""What judges the chaos has to be right itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.every import every
from tests.faults.exactly_once.kills import (
    COMMIT_FAILPOINTS,
    COMMITTERS,
    SWEEP_FAILPOINTS,
    TASK_FAILPOINTS,
    WORKERS,
)
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.faults.exactly_once.test_broken_rules import NOTICED
from tests.kafka.witness import Witnessed

Change = Callable[[list[Witnessed]], list[Witnessed]]


@pytest.fixture
def rows(tmp_path: Path) -> NumberedRows:
    return NumberedRows(tmp_path / "rows", batches=3, tasks=2, rows=4).write()


def delivered(rows: NumberedRows) -> list[Witnessed]:
    """As the sink should have written what is in the files."""
    numbers = [line for path in sorted(rows.folder.iterdir()) for line in path.read_text().split()]
    return [Witnessed(0, at, b"%d" % (int(number) % rows.keys), number.encode(), (), None) for at, number in enumerate(numbers)]


def test_rows_that_are_there_once_and_in_order_pass(rows: NumberedRows) -> None:
    assert len(delivered(rows)) == rows.total == 24
    rows.check(delivered(rows))


@every(
    "change, complaint",
    [
        (lambda found: found[:5] + found[6:], "key 3: 1 rows lost"),
        (lambda found: [*found, found[5]], "key 3: 1 rows twice"),
        (lambda found: found[::-1], "key 0: out of order"),
        (lambda found: [*found, found[0]._replace(value=b"24")], "key 0: rows that nobody sent"),
        (lambda found: [found[0]._replace(key=b"1"), *found[1:]], "row 0 stands under the key 1"),
        (lambda _: [], "key 3: 6 rows lost"),
    ],
)
def test_what_is_wrong_is_said(rows: NumberedRows, change: Change, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        rows.check(change(delivered(rows)))


def test_each_failpoint_is_one_where_somebody_is_killed() -> None:
    failpoints = {*TASK_FAILPOINTS, *COMMIT_FAILPOINTS, *SWEEP_FAILPOINTS}
    assert {kill.failpoint for kill in (*WORKERS, *COMMITTERS)} == failpoints


@every("rule", NOTICED)
def test_the_kills_have_the_one_that_each_broken_rule_is_noticed_by(rule: str) -> None:
    kills, _ = NOTICED[rule]
    assert {*kills} <= {*WORKERS, *COMMITTERS}
