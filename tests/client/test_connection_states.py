"""Connection states: when a node may be tried, at which address, and for how long."""

from __future__ import annotations

import random
import socket

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_kafka_sink.client.connection_states import FOREVER_MS, NEXT, ClusterConnectionStates, ConnectionState, Resolver
from spark_kafka_sink.network.channel import Address
from spark_kafka_sink.network.selector import END_OF_TIME_MS
from spark_kafka_sink.options.producer_options import producer_config
from tests.examples import examples

S = ConnectionState
ENDS = (S.DISCONNECTED, S.AUTHENTICATION_FAILED)


def two_addresses(host: str, port: int) -> list[Address]:
    if host == "unknown":
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [Address(socket.AF_INET, (f"{host}-{number}", port)) for number in (1, 2)]


def new_states(resolver: Resolver = two_addresses) -> ClusterConnectionStates:
    return ClusterConnectionStates(producer_config({"bootstrap.servers": "kafka:9092"}), resolver=resolver, rng=random.Random(1))


@pytest.fixture
def states() -> ClusterConnectionStates:
    return new_states()


def connecting(states: ClusterConnectionStates, now_ms: int = 0, host: str = "kafka", port: int = 9092) -> str:
    return str(states.connecting(1, host, port, now_ms))


def made_ready(states: ClusterConnectionStates) -> None:
    connecting(states)
    states.checking_api_versions(1)
    states.ready(1)


def failed_times(states: ClusterConnectionStates, times: int) -> None:
    for _ in range(times):
        connecting(states)
        states.disconnected(1, 0)


def test_a_login_stands_between_the_versions_and_ready_and_has_a_deadline(states: ClusterConnectionStates) -> None:
    connecting(states)
    states.checking_api_versions(1)
    states.authenticating(1, 500)
    assert states.is_preparing(1)
    assert not states.is_ready(1, 0)
    assert (states.overdue(499), states.overdue(500)) == ([], [1])
    states.authenticating(1, 900)
    assert (states.due_ms, states.overdue(899)) == (500, [])
    assert (states.due_ms, states.overdue(899), states.overdue(900)) == (900, [], [1])
    assert states.poll_delay_ms(1, 100) == 800
    states.ready(1)
    assert states.is_ready(1, 0)


def test_a_session_that_is_renewed_holds_back_requests_and_is_no_failure(states: ClusterConnectionStates) -> None:
    made_ready(states)
    states.reauthenticating(1)
    assert not states.is_ready(1, 0)
    assert not states.is_disconnected(1)
    assert states.poll_delay_ms(1, 0) == FOREVER_MS
    states.ready(1)
    assert states.is_ready(1, 0)


def test_back_off_doubles_with_every_failure_up_to_its_most(states: ClusterConnectionStates) -> None:
    delays = []
    for _ in range(8):
        failed_times(states, 1)
        delays.append(states.poll_delay_ms(1, 0))
    for delay, plain in zip(delays, [50, 100, 200, 400, 800, 1000, 1000, 1000], strict=True):
        assert 0.8 * plain - 1 <= delay <= min(1.2 * plain, 1000)


def test_back_off_starts_anew_only_once_a_connection_was_ready(states: ClusterConnectionStates) -> None:
    failed_times(states, 5)
    connecting(states)
    states.checking_api_versions(1)
    states.disconnected(1, 0)
    assert states.poll_delay_ms(1, 0) > 500
    made_ready(states)
    states.disconnected(1, 0)
    assert states.poll_delay_ms(1, 0) <= 60


def test_the_time_for_connecting_doubles_with_every_failure_up_to_its_most(states: ClusterConnectionStates) -> None:
    timeouts = []
    for _ in range(4):
        connecting(states, 1000)
        timeouts.append(states.setup_timeout_ms(1))
        due_ms = 1000 + timeouts[-1]
        assert (states.overdue(due_ms - 1), states.overdue(due_ms)) == ([], [1])
        assert states.poll_delay_ms(1, 1000) == timeouts[-1]
        states.disconnected(1, 1000)
    for timeout, plain in zip(timeouts, [10_000, 20_000, 30_000, 30_000], strict=True):
        assert 0.8 * plain <= timeout <= min(1.2 * plain, 30_000)
    assert states.overdue(10**9) == []
    assert states.due_ms == END_OF_TIME_MS


def test_the_time_for_connecting_starts_anew_once_tcp_connected(states: ClusterConnectionStates) -> None:
    failed_times(states, 3)
    connecting(states)
    states.checking_api_versions(1)
    assert states.setup_timeout_ms(1) <= 12_000


def test_after_a_connection_was_lost_the_name_is_resolved_again_and_the_lost_address_comes_last(
    states: ClusterConnectionStates,
) -> None:
    made_ready(states)
    states.disconnected(1, 0)
    assert connecting(states) == "kafka-2:9092"
    states.disconnected(1, 0)
    assert connecting(states) == "kafka-1:9092"


@pytest.mark.fault("connection", "a broker changes host and port")
def test_a_host_that_moved_while_it_was_connected_is_found_at_its_new_address() -> None:
    found = ["10.0.0.1", "10.0.0.2"]
    states = new_states(resolver=lambda host, port: [Address(socket.AF_INET, (host, port)) for host in found])
    made_ready(states)
    found[:] = ["10.0.0.3"]
    states.disconnected(1, 0)
    assert connecting(states) == "10.0.0.3:9092"


@pytest.mark.parametrize(("host", "port", "address"), [("moved", 9092, "moved-1:9092"), ("kafka", 9999, "kafka-1:9999")])
def test_a_broker_that_moved_starts_anew_at_its_new_place(
    states: ClusterConnectionStates, host: str, port: int, address: str
) -> None:
    failed_times(states, 5)
    assert connecting(states, host=host, port=port) == address
    states.disconnected(1, 0)
    assert states.poll_delay_ms(1, 0) <= 60


def test_a_node_that_was_removed_can_be_connected_to_at_once(states: ClusterConnectionStates) -> None:
    failed_times(states, 3)
    states.remove(1)
    states.remove(1)
    assert states.can_connect(1, 0)
    assert states.state(1) is None


def test_a_throttled_node_is_ready_again_after_the_longest_wait_it_asked_for(states: ClusterConnectionStates) -> None:
    made_ready(states)
    assert states.poll_delay_ms(1, 0) == FOREVER_MS
    states.throttle(1, 500)
    states.throttle(1, 300)
    assert not states.is_ready(1, 499)
    assert states.poll_delay_ms(1, 100) == 400
    assert states.is_ready(1, 500)


class StatesMachine(RuleBasedStateMachine):
    """Whatever happens, a node is in exactly one state, and a delay never asks to wait longer than is configured."""

    def __init__(self) -> None:
        super().__init__()
        self.states = new_states()
        self.now_ms = 0

    @rule(ms=st.integers(0, 40_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def connect(self) -> None:
        if self.states.can_connect(1, self.now_ms):
            connecting(self.states, self.now_ms)

    @rule()
    def get_on(self) -> None:
        if self.states.state(1) is S.CONNECTING:
            self.states.checking_api_versions(1)
        elif self.states.state(1) in (S.CHECKING_API_VERSIONS, S.AUTHENTICATING, S.REAUTHENTICATING):
            self.states.ready(1)

    @rule(ms=st.integers(0, 40_000))
    def log_in(self, ms: int) -> None:
        if self.states.state(1) in (S.CHECKING_API_VERSIONS, S.AUTHENTICATING):
            self.states.authenticating(1, self.now_ms + ms)
        elif self.states.state(1) is S.READY:
            self.states.reauthenticating(1)

    @rule(ms=st.integers(0, 3_000))
    def probe(self, ms: int) -> None:
        if S.PROBING in NEXT.get(self.states.state(1) or S.DISCONNECTED, ()):
            self.states.probing(1, self.now_ms + ms)

    @rule(is_final=st.booleans())
    def lose(self, is_final: bool) -> None:
        if self.states.state(1) not in (None, *ENDS):
            self.states.disconnected(1, self.now_ms, authentication_failed=is_final)

    @rule(ms=st.integers(0, 1000))
    def throttle(self, ms: int) -> None:
        if self.states.state(1) is S.READY:
            self.states.throttle(1, self.now_ms + ms)

    @invariant()
    def one_answer_to_everything(self) -> None:
        states, now_ms = self.states, self.now_ms
        state = states.state(1)
        assert states.is_preparing(1) == (state not in (None, S.READY, *ENDS))
        assert states.is_disconnected(1) == (state in ENDS)
        assert not (states.can_connect(1, now_ms) and states.is_ready(1, now_ms))
        is_limited = state in (S.CONNECTING, S.AUTHENTICATING, S.PROBING)
        assert list(states.overdue(END_OF_TIME_MS)) == [1] * is_limited

    @invariant()
    def delays_have_ends(self) -> None:
        delay = self.states.poll_delay_ms(1, self.now_ms)
        maximum = {None: 0, S.DISCONNECTED: 1000, S.CONNECTING: 30_000}.get(self.states.state(1), FOREVER_MS)
        assert 0 <= delay <= maximum
        if self.states.state(1) is S.DISCONNECTED:
            assert self.states.can_connect(1, self.now_ms + delay)


TestStatesMachine = StatesMachine.TestCase
TestStatesMachine.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
