"""The broker of the fault tests, which is told what to answer."""

from __future__ import annotations

from tests.faults.conftest import cluster

__all__ = ["cluster"]
