"""What fuzzing found is read again: each input of the kept corpus is refused or read right, at little cost."""

from __future__ import annotations

import pytest

from tests.fuzz.corpus import MOST_BYTES, kept
from tests.fuzz.targets import TARGETS
from tests.limits import costs_at_most


@pytest.mark.slow
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
