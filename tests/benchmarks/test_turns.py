"""Contenders take turns; who fails is out, and time that has run out ends a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.cells import CELLS, Cell, Plan, Turns, take_turns
from benchmarks.cost.cells import CELLS as COST_CELLS
from benchmarks.figures import GOALS, reached
from benchmarks.results import Run

CELL = Cell("throughput", "cell", 100, "none", 8, 1000, 10, ("a", "b"))
THREE_ROUNDS = Plan(quick=False, repeats=3, least_repeats=1, cell_seconds=60.0)


class Stage:
    """Runs nothing and remembers who was asked."""

    def __init__(self, failing: str = "") -> None:
        self.asked: list[str] = []
        self._failing = failing

    def __call__(self, name: str) -> Run:
        self.asked.append(name)
        if name == self._failing:
            raise RuntimeError("no broker")
        return Run(rows=len(self.asked), seconds=1.0, cpu_s=1.0)


def test_rounds_alternate_their_order_and_warm_ups_are_not_counted() -> None:
    stage = Stage()
    runs = take_turns(CELL, THREE_ROUNDS, 1, stage)
    assert stage.asked == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert [run.rows for run in runs["a"]] == [4, 5, 8]


def test_who_fails_is_not_asked_again_and_has_no_figures() -> None:
    stage = Stage(failing="a")
    runs = take_turns(CELL, THREE_ROUNDS, 0, stage)
    assert stage.asked == ["a", "b", "b", "b"]
    assert (len(runs["a"]), len(runs["b"])) == (0, 3)


def test_a_cell_out_of_time_still_has_its_least_repeats() -> None:
    runs = take_turns(CELL, replace(THREE_ROUNDS, least_repeats=2, cell_seconds=-1.0), 1, Stage())
    assert {name: len(them) for name, them in runs.items()} == {"a": 2, "b": 2}


def test_the_cells_feed_every_figure_to_reach() -> None:
    cells: Sequence[Turns] = [*CELLS, *COST_CELLS]
    results = {cell.name: {name: [Run(1, 1.0, 1.0, 1, ids=1, log_bytes=1)] for name in cell.contenders} for cell in cells}
    assert [goal for goal, figure in reached(results) if figure is not None] == list(GOALS)
