"""Certificates for the tests of a session."""

from __future__ import annotations

import pytest

from tests.security.certificates import Certificates


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    return Certificates()
