"""How many random histories each of the producer's models goes through."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.tiers import HISTORIES_PROFILE

# Not derandomized, as Hypothesis would by itself in CI: each run looks at other histories. `print_blob` lets one be repeated.
HISTORIES = settings(
    settings.get_profile(HISTORIES_PROFILE),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
