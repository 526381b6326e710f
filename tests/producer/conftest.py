"""The broker of the fault tests."""

from __future__ import annotations

from tests.faults.conftest import cluster

__all__ = ["cluster"]
