"""Which state may follow which: Kafka's table, and no other step."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.group.classic_group import ClassicGroup, GroupRules
from spark_kafka_sink.broker.group.group_state import GroupState

STEPS = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY),
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
    *((state, GroupState.DEAD) for state in GroupState),
}


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_group_takes_the_steps_of_the_table_and_no_other(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g", lambda: 7, GroupRules())
    group.state = before
    if (before, after) in STEPS:
        group.transition_to(after)
        assert (group.previous_state, group.state, group.state_since_ms) == (before, after, 7)
    else:
        with pytest.raises(RuntimeError, match=f"cannot go from {before.value} to {after.value}"):
            group.transition_to(after)
        assert group.state is before
