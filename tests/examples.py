"""How many examples Hypothesis draws for a property, in each tier."""

from __future__ import annotations

from hypothesis import settings

from tests.tiers import PATIENT_PROFILE


def examples(count: int) -> int:
    """Returns `count` in `make test-all`, and a part of it in the smaller tiers, but at least 10.

    Each run draws other examples, and `make test` runs often.
    """
    return max(10, count * settings.get_profile(PATIENT_PROFILE).max_examples // 100)
