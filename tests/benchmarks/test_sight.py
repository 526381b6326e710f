"""What the benchmark of watching prints."""

from __future__ import annotations

import pytest

pytest.importorskip("openlineage.client")
pytest.importorskip("opentelemetry.sdk")

from benchmarks.sight import NAMES, OFF, ON, Costs, lines


def test_the_difference_is_that_of_runs_that_followed_each_other() -> None:
    """The machine became slower in the last round, for both."""
    off = [Costs(1.0, 0.5, 0.1, 1.0), Costs(1.0, 0.5, 0.1, 1.0), Costs(4.0, 2.0, 0.4, 4.0)]
    on = [Costs(1.02, 0.5, 0.2, 1.0), Costs(1.02, 0.5, 0.2, 1.0), Costs(4.08, 2.0, 0.8, 4.0)]
    first, workers, driver, _ = lines({OFF: off, ON: on})
    assert first.split() == [*NAMES[0].split(), OFF, "1.000", ON, "1.020", "+2.0", "%"]
    assert (workers.split()[-2], driver.split()[-2]) == ("+0.0", "+100.0")
