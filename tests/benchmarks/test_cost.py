"""The cost benchmark: what its cells cover, the bytes of its rows, the time it takes, and what it makes of its figures."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.cost.cells import BY_NAME, CELLS, Format, Payload
from benchmarks.cost.costs import CostSample, added, costs
from benchmarks.cost.page import FILE, HEADLINE, README_CELLS, quoted, readme
from benchmarks.cost.rows import table
from benchmarks.figures import Spread
from benchmarks.pictures import kept

SIZES = (100, 1024, 10 * 1024)
CELL = "100B-json-lz4-8"


def sample(contender: str, jvm_us: float, python_us: float, cell: str = CELL) -> CostSample:
    return CostSample(cell, contender, 1_000_000, 1.0, jvm_us, python_us, planners_s=0.2)


# All contenders of each cell; medians of three rounds.
SAMPLES = [
    sample(contender, jvm_us, python_us, cell.name)
    for cell in CELLS
    for contender, jvm_us in zip(cell.contenders, (6, 4.5, 2, 8, 9, 1, 0.5), strict=False)
    for python_us in (1.0, 3.0, 2.0)
]


# Cells


def test_the_cells_cover_sizes_formats_partitions_headers_and_exactly_once() -> None:
    assert {(cell.payload.value_bytes, cell.payload.format) for cell in CELLS} == {
        (size, each) for size in SIZES for each in Format
    }
    assert {cell.partitions for cell in CELLS} == {8, 200, 1000}
    assert any(cell.payload.headers for cell in CELLS)
    assert any(cell.exactly_once for cell in CELLS)
    assert len(BY_NAME) == len(CELLS)


# Time


# Rows


@pytest.mark.parametrize("size", SIZES)
def test_json_values_are_objects_of_the_exact_size(size: int) -> None:
    values = table(Payload(size), 50, seed=1)["value"].to_pylist()

    assert {len(value) for value in values} == {size}
    assert len({json.loads(value)["id"] for value in values}) == 50
    assert all(isinstance(json.loads(value)["amount"], float) for value in values)


# Figures


def test_an_own_share_is_the_difference_of_medians_with_that_within_each_round() -> None:
    rounds = {"sink": (5.0, 3.0, 4.0), "ceiling": (1.0, 1.5, 2.0)}
    found = costs([sample(name, jvm_us, 0.0) for name, runs in rounds.items() for jvm_us in runs])[CELL]

    assert added(found, "sink", "ceiling") == Spread(2.5, 1.5, 4.0)
    assert added(found, "sink", "parquet") is None


# The page and its pictures


def test_the_figures_of_the_docs_are_those_of_all_cells() -> None:
    measured_on, samples = kept(FILE, CostSample)

    assert re.match(r"\d{4}-\d\d-\d\d; .* cores", measured_on)
    assert {(one.cell, one.contender) for one in samples} == {(cell.name, name) for cell in CELLS for name in cell.contenders}


def test_the_readme_quotes_the_figures() -> None:
    item = quoted(costs(SAMPLES))

    assert "Spark's own sink takes 2.0 times the executor CPU of this one, and 2.0 times for rows of 1 KB" in " ".join(
        item.split()
    )
    assert "confluent-kafka, with its defaults, takes 2.5 and 2.5 times." in " ".join(item.split())
    assert max(map(len, item.splitlines())) <= 100
    assert len(item.splitlines()) <= 4  # the README has no room for more
    assert quoted(costs(kept(FILE, CostSample)[1])) in readme()
    assert f"docs/pictures/{HEADLINE}" in readme()
    assert set(README_CELLS) <= set(BY_NAME)
