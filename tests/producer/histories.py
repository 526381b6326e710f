"""How many random histories each of the producer's models goes through."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Not derandomized, as Hypothesis would by itself in CI: each run looks at other histories. `print_blob` lets one be repeated.
HISTORIES = settings(
    max_examples=1000,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
