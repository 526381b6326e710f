"""The curves of docs/performance.md: what is measured and kept, and that the pictures are those of their figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks.curves import OUTPUT, points
from benchmarks.pictures import Curve, Sample, kept


@pytest.mark.parametrize("curve", Curve)
def test_a_picture_in_the_docs_has_each_line_and_says_when_and_on_what_it_was_measured(curve: Curve) -> None:
    measured_on, samples = kept(OUTPUT / f"{curve}.csv", Sample)
    picture = ElementTree.parse(OUTPUT / f"{curve}.svg")
    shown = " ".join("".join(element.itertext()) for element in picture.iter())

    assert {(sample.series, sample.x) for sample in samples} == {(point.series, point.x) for point in points(curve)}
    assert re.match(r"\d{4}-\d\d-\d\d; .* cores", measured_on)
    assert measured_on in shown
    assert all(sample.series in shown for sample in samples)
