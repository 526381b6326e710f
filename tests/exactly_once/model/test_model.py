"""No order of events loses or doubles rows, or stops a query for nothing; without any one of the rules some order does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.exactly_once.model import values
from tests.exactly_once.model.checker import Result, search
from tests.exactly_once.model.configuration import Configuration
from tests.exactly_once.model.configurations import CONFIGURATIONS
from tests.exactly_once.model.left_out import LEFT_OUT, whole


@pytest.fixture(scope="module", autouse=True)
def _forgotten_afterwards() -> Iterator[None]:
    """The garbage collector would look at all of these objects in every test that follows."""
    yield
    values.forget()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_nothing_goes_wrong_in_any_order_of_events(name: str) -> None:
    found = search(CONFIGURATIONS[name])
    assert found.broken is None, _story(found)
    assert found.states > 1_000, "so few states show nothing"


@pytest.mark.parametrize("rule", LEFT_OUT)
def test_each_rule_is_needed(rule: str) -> None:
    without = replace(LEFT_OUT[rule], broken=rule)
    assert search(without).broken is not None, f"without the rule {rule!r} nothing goes wrong: it is not needed"


@pytest.mark.parametrize("configuration", list(dict.fromkeys(map(whole, LEFT_OUT.values()))))
def test_with_all_rules_nothing_goes_wrong_where_one_is_needed(configuration: Configuration) -> None:
    found = search(configuration)
    assert found.broken is None, _story(found)


def _story(found: Result) -> str:
    return "\n".join((f"{found.broken}, after", *found.trace))
