"""The curves of docs/performance.md: what is measured and kept, and that the pictures are those of their figures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.curves import OUTPUT, json_values, points
from benchmarks.pictures import Curve, Sample, kept


def texts(picture: Path) -> str:
    return " ".join("".join(element.itertext()) for element in ElementTree.parse(picture).iter())


def test_values_have_the_size_that_is_asked_for_and_are_not_all_the_same() -> None:
    for size in (10, 100, 3_000):
        values = json_values(5, size, seed=1).to_pylist()
        assert {len(value) for value in values} == {size}
        assert len(set(values)) == 5


@pytest.mark.parametrize("curve", Curve)
def test_a_picture_in_the_docs_has_each_line_and_says_when_and_on_what_it_was_measured(curve: Curve) -> None:
    measured_on, samples = kept(OUTPUT / f"{curve}.csv", Sample)
    shown = texts(OUTPUT / f"{curve}.svg")

    assert {(sample.series, sample.x) for sample in samples} == {(point.series, point.x) for point in points(curve)}
    assert re.match(r"\d{4}-\d\d-\d\d; .* cores", measured_on)
    assert measured_on in shown
    assert all(sample.series in shown for sample in samples)
