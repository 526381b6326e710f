"""A selector with nothing connected to it yet, closed after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network.ends import Ends


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()
