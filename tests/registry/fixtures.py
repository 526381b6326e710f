"""Fixtures of schema registries for all tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.registry.apicurio import Apicurio
from tests.registry.stand_in import StandIn

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """A real registry, shared by the tests of a session. A test that uses it is marked `java`, and makes its own subjects."""
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as registry:
        registry.wait()
        yield registry


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A registry in this process, which also fails as it is told to."""
    with StandIn() as registry:
        yield registry


@pytest.fixture
def new_subject() -> Callable[[], str]:
    """Returns the name of a subject that no other test uses."""
    return lambda: f"subject-{next(_numbers)}-value"


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the proxy of this machine."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
