"""Requests in flight: answers are for the oldest, up to a limit, and none is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spark_kafka_sink.client.in_flight import InFlightRequest, InFlightRequests
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.network.selector import END_OF_TIME_MS
from spark_kafka_sink.protocol.apis.produce import PRODUCE
from tests.examples import examples

LIMIT = 5


def request(number: int = 0, *, node_id: int = 1, expects_answer: bool = True, deadline_ms: int = 100) -> InFlightRequest:
    return InFlightRequest(
        node_id=node_id,
        correlation_id=number,
        api=PRODUCE,
        version=9,
        tag=None,
        expects_answer=expects_answer,
        sent_ms=0,
        timeout_ms=100,
        deadline_ms=deadline_ms,
    )


def added(in_flight: InFlightRequests, *requests: InFlightRequest) -> None:
    for one in requests:
        in_flight.add(one)
        in_flight.sent(one.node_id)


@pytest.mark.parametrize("expects_answer", [True, False])
def test_an_answer_to_a_request_that_is_not_wholly_sent_is_a_protocol_error(expects_answer: bool) -> None:
    """Its buffers would go back to the pool while they are still being written."""
    in_flight = InFlightRequests(LIMIT)
    in_flight.add(request(expects_answer=expects_answer))
    with pytest.raises(ProtocolError):
        in_flight.awaiting(1)


def test_the_first_deadline_counts_and_each_node_times_out_by_itself() -> None:
    in_flight = InFlightRequests(LIMIT)
    late, later, other = request(0, deadline_ms=100), request(1, deadline_ms=90), request(2, node_id=2, deadline_ms=200)
    assert in_flight.due_ms == END_OF_TIME_MS
    added(in_flight, late, later, other)
    assert in_flight.due_ms == 90
    assert in_flight.timed_out(89) == []
    assert in_flight.timed_out(90) == [later]
    assert in_flight.timed_out(200) == [late, other]


def test_an_answered_request_is_not_due_after_the_next_look() -> None:
    in_flight = InFlightRequests(LIMIT)
    added(in_flight, request(0, deadline_ms=100), request(1, deadline_ms=300))
    in_flight.answered(1)
    assert in_flight.due_ms <= 300
    assert in_flight.timed_out(100) == []
    assert in_flight.due_ms == 300
    in_flight.answered(1)
    assert in_flight.timed_out(300) == []
    assert in_flight.due_ms == END_OF_TIME_MS


class InFlightMachine(RuleBasedStateMachine):
    """Against lists of requests by node."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = InFlightRequests(LIMIT)
        self.model: dict[int, list[InFlightRequest]] = {1: [], 2: []}
        self.number = 0

    def sending(self, node_id: int) -> bool:
        return bool(self.model[node_id]) and not self.model[node_id][-1].is_sent

    @rule(node_id=st.sampled_from([1, 2]), expects_answer=st.booleans())
    def send(self, node_id: int, expects_answer: bool) -> None:
        assert self.in_flight.can_send_more(node_id) == (len(self.model[node_id]) < LIMIT and not self.sending(node_id))
        if self.in_flight.can_send_more(node_id):
            self.number += 1
            self.model[node_id].append(request(self.number, node_id=node_id, expects_answer=expects_answer))
            self.in_flight.add(self.model[node_id][-1])

    @precondition(lambda self: self.sending(1) or self.sending(2))
    @rule(data=st.data())
    def sent(self, data: st.DataObject) -> None:
        node_id = data.draw(st.sampled_from([node_id for node_id in (1, 2) if self.sending(node_id)]))
        last = self.model[node_id][-1]
        done = self.in_flight.sent(node_id)
        assert last.is_sent
        assert done is (None if last.expects_answer else last)
        if done is not None:
            self.model[node_id].pop()

    @rule(node_id=st.sampled_from([1, 2]))
    def answer(self, node_id: int) -> None:
        requests = self.model[node_id]
        if requests and requests[0].is_sent:
            assert self.in_flight.awaiting(node_id) is requests.pop(0)
            self.in_flight.answered(node_id)
        else:
            with pytest.raises(ProtocolError):
                self.in_flight.awaiting(node_id)

    @rule(node_id=st.sampled_from([1, 2]))
    def lose_connection(self, node_id: int) -> None:
        assert self.in_flight.clear(node_id) == self.model[node_id]
        self.model[node_id] = []

    @invariant()
    def counts_agree(self) -> None:
        assert [self.in_flight.count(node_id) for node_id in (1, 2)] == [len(self.model[1]), len(self.model[2])]
        assert self.in_flight.count() == len(self.model[1]) + len(self.model[2])


TestInFlightMachine = InFlightMachine.TestCase
TestInFlightMachine.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
