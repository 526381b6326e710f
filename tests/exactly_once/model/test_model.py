"""No order of events loses or doubles rows, or stops a query for nothing; without any one of the rules some order does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.commit_rules import Reason
from tests.exactly_once.model import truth, values
from tests.exactly_once.model.checker import Result, search
from tests.exactly_once.model.configuration import Configuration
from tests.exactly_once.model.configurations import CONFIGURATIONS, SMALL
from tests.exactly_once.model.kept import KEPT_WITHOUT_COUNTER_EXAMPLE, NEVER_COME_TO
from tests.exactly_once.model.left_out import LEFT_OUT, whole
from tests.tiers import whole_but

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _forgotten_afterwards() -> Iterator[None]:
    """The garbage collector would look at all of these objects in every test that follows."""
    yield
    values.forget()


@pytest.mark.parametrize("name", whole_but(CONFIGURATIONS, SMALL, "seconds of search each"))
def test_nothing_goes_wrong_in_any_order_of_events(name: str) -> None:
    found = search(CONFIGURATIONS[name])
    assert found.broken is None, _story(found)
    assert found.states > 1_000, "so few states show nothing"


@pytest.mark.fault("spark", "a rule that is broken in the code")
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_each_rule_is_needed(rule: str) -> None:
    without = replace(LEFT_OUT[rule], broken=rule)
    assert search(without).broken is not None, f"without the rule {rule!r} nothing goes wrong: it is not needed"


@pytest.mark.parametrize("configuration", list(dict.fromkeys(map(whole, LEFT_OUT.values()))))
def test_with_all_rules_nothing_goes_wrong_where_one_is_needed(configuration: Configuration) -> None:
    found = search(configuration)
    assert found.broken is None, _story(found)


def test_what_is_called_small_is_a_configuration() -> None:
    assert CONFIGURATIONS.keys() > SMALL


def test_every_rule_that_can_be_broken_is_left_out_or_kept_for_a_reason() -> None:
    sources = (each.read_text() for each in Path(__file__).parent.glob("*.py"))
    breakable = {rule for source in sources for rule in re.findall(r'\.breaks\("(.+?)"\)', source)}
    assert breakable <= LEFT_OUT.keys() | KEPT_WITHOUT_COUNTER_EXAMPLE.keys()
    assert not LEFT_OUT.keys() & KEPT_WITHOUT_COUNTER_EXAMPLE.keys()
    changed = {rule for rule, each in LEFT_OUT.items() if each != whole(each)}
    assert breakable | changed >= LEFT_OUT.keys(), "a name that nothing looks at leaves out nothing"


def test_the_model_judges_every_reason_but_those_it_never_comes_to() -> None:
    assert set(Reason) - truth.IS_TRUE.keys() == {each for each in NEVER_COME_TO if isinstance(each, Reason)}


def _story(found: Result) -> str:
    return "\n".join((f"{found.broken}, after", *found.trace))
