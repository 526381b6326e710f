"""No answer of a broker makes a producer or a client of the cluster hang, die, or raise what is not an error of this package."""

from __future__ import annotations

import random

import pytest

from tests.broker.unharmed import MEGABYTE, memory_stays
from tests.fuzz.hostile_answers import asked, nothing_raw, produced, rig

pytestmark = pytest.mark.slow

FRAMES = 400
SEED = 19


@pytest.mark.parametrize("life", [produced, asked])
def test_a_lying_broker_costs_errors_and_nothing_else(life: object) -> None:
    rng = random.Random(SEED)
    with nothing_raw(), memory_stays(64 * MEGABYTE), rig(SEED) as made:
        while made.proxy.answers < FRAMES:
            life(made, rng)  # type: ignore[operator]
    # It lied, and was believed often enough to be asked on.
    assert made.proxy.changed > FRAMES // 20
    assert made.outcomes["succeeded"] > 10
    assert len(made.outcomes) > 3
