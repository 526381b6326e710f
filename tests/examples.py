"""How many examples Hypothesis draws for a property, in each tier."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

from tests.tiers import HISTORIES_PROFILE

_OF_ALL: Final = 1000
"""The histories of `make test-all`."""
_IS_PART: Final = settings.get_profile(HISTORIES_PROFILE).max_examples < _OF_ALL


def examples(count: int) -> int:
    """Returns `count` in `make test-all`, and a quarter of it in the smaller tiers, but at least 10.

    Each run draws other examples, and `make test` runs often.
    """
    return max(10, count // 4) if _IS_PART else count
