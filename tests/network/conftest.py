"""A selector with nothing connected to it yet, closed after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network.ends import Ends
from tests.security.certificates import Certificates


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    return Certificates()
