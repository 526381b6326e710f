"""What fuzzing found is read again: each input of the kept corpus is refused or read right, at little cost."""

from __future__ import annotations

import random

import pytest

from tests.broker.unharmed import MEGABYTE, memory_stays
from tests.fuzz.hostile_answers import asked, nothing_raw, produced, rig
from tests.fuzz.targets import MOST_BYTES, TARGETS, kept
from tests.limits import costs_at_most

pytestmark = pytest.mark.slow

FRAMES = 400
SEED = 19


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_fuzzing_kept_are_refused_or_read_right(name: str) -> None:
    target, seeds = TARGETS[name]
    inputs = [*kept(name), *seeds()]

    def replayed() -> None:
        for data in inputs:
            target(data)

    costs_at_most(replayed, seconds=5)


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_has_a_small_corpus(name: str) -> None:
    assert kept(name)
    assert sum(len(data) for data in kept(name)) <= MOST_BYTES


@pytest.mark.parametrize("life", [produced, asked])
def test_a_lying_broker_costs_errors_and_nothing_else(life: object) -> None:
    """No call hangs, dies, or raises what is not an error of this package."""
    rng = random.Random(SEED)
    with nothing_raw(), memory_stays(64 * MEGABYTE), rig(SEED) as made:
        while made.proxy.answers < FRAMES:
            life(made, rng)  # type: ignore[operator]
    # It lied, and was believed often enough to be asked on.
    assert made.proxy.changed > FRAMES // 20
    assert made.outcomes["succeeded"] > 10
    assert len(made.outcomes) > 3
