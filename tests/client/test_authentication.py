"""NetworkClient logs in to a broker with SASL, says at once what is wrong, and stays logged in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.kafka_release import RELEASES
from spark_kafka_sink.client.sasl_sessions import MIN_REAUTHENTICATION_MS
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, OptionError, ProtocolError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.client.rig import REQUEST_TIMEOUT_MS, Rig, WatchedChannel, errors
from tests.client.sasl import LOGIN, PASSWORD, USER, Mechanism
from tests.waiting import HOUR_MS

SESSION_MS = 12_000
CONFIG = BrokerConfig(sasl_users={USER: PASSWORD}, connection_failed_authentication_delay_ms=10)
TOKEN_TIMEOUT_MS = 20_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(2, config=CONFIG) as running:
        yield running


@contextmanager
def broker_with_sessions(lifetime_ms: int) -> Iterator[EmbeddedBroker]:
    """A broker that promises sessions of this length, and ends none: its clock is not the client's, which a test sets by hand."""

    def promise(_: Message, answer: SaslAuthenticateResponse) -> Message:
        return replace(answer, session_lifetime_ms=lifetime_ms)

    with EmbeddedBroker(config=replace(CONFIG, connections_max_reauth_ms=HOUR_MS)) as running:
        running.faults.alter(ApiKey.SASL_AUTHENTICATE, promise, times=None)
        yield running


@pytest.fixture
def sessions() -> Iterator[EmbeddedBroker]:
    """A broker whose sessions end."""
    with broker_with_sessions(SESSION_MS) as running:
        yield running


@pytest.fixture
def mechanism() -> Mechanism:
    return Mechanism()


@contextmanager
def logging_in(broker: EmbeddedBroker, mechanism: Mechanism, **settings: object) -> Iterator[Rig]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with Rig(broker, settings={**LOGIN, **named}, open_mechanism=mechanism.open) as rig:
        yield rig


def asked(channel: WatchedChannel) -> list[str]:
    return [ApiKey(header.api_key).name for header, _ in channel.requests()]


def rejected(rig: Rig, node_id: int = 1) -> AuthenticationError:
    """Polls until this broker has rejected the login."""
    rig.ready(node_id)
    rig.poll_until(lambda: rig.client.rejections)
    assert rig.client.is_unavailable(node_id)
    return rig.client.take_rejections()[node_id].error


# Logging in


@pytest.mark.parametrize("like", sorted(RELEASES))
def test_a_client_logs_in_before_anything_else_is_asked(like: str, mechanism: Mechanism) -> None:
    with EmbeddedBroker(config=replace(CONFIG, like=like)) as broker, logging_in(broker, mechanism) as rig:
        channel = rig.connected()
        assert asked(channel)[-3:] == ["API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"]
        rig.send("first")
        assert errors(rig.responses()) == {None}
        assert mechanism.asked == ["127.0.0.1"]


def test_a_connection_is_not_ready_before_the_login_is_complete(broker: EmbeddedBroker, mechanism: Mechanism) -> None:
    with logging_in(broker, mechanism) as rig:
        held = broker.faults.hold(ApiKey.SASL_AUTHENTICATE)
        rig.ready()
        rig.poll_until(lambda: held.hits)
        assert not rig.ready()
        assert not rig.client.is_unavailable(1)
        held.remove()
        rig.poll_until(rig.ready)


def test_no_token_yet_is_waited_for_without_a_request_and_without_a_spin(broker: EmbeddedBroker, mechanism: Mechanism) -> None:
    mechanism.is_fetching = True
    timeouts = dict.fromkeys(("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"), HOUR_MS)
    with logging_in(broker, mechanism, **timeouts) as rig:
        channel = rig.connecting()
        rig.poll_until(lambda: mechanism.asked)
        asked_before = len(mechanism.asked)
        began = time.monotonic()
        rig.poll(100)
        assert time.monotonic() - began > 0.09
        assert len(mechanism.asked) <= asked_before + 1
        assert "SASL_HANDSHAKE" not in asked(channel)
        mechanism.is_fetching = False
        mechanism.wakeup()
        rig.poll(HOUR_MS)
        rig.poll_until(rig.ready)


def test_a_token_that_does_not_come_is_given_up(broker: EmbeddedBroker, mechanism: Mechanism) -> None:
    mechanism.is_fetching = True
    with logging_in(broker, mechanism) as rig:
        rig.connecting()
        rig.poll_until(lambda: mechanism.asked)
        rig.pass_ms(TOKEN_TIMEOUT_MS - 1)
        rig.poll()
        assert not rig.client.is_unavailable(1)
        rig.pass_ms(1)
        rig.poll()
        assert "there was no token for the SASL login at" in str(rig.client.why_not_ready(1))
        assert "20,000 ms" in str(rig.client.why_not_ready(1))
        assert not rig.client.rejections


@pytest.mark.parametrize("error", [AuthenticationError("the token is dead"), OptionError("the file with the password is gone")])
def test_nothing_to_log_in_with_is_final(broker: EmbeddedBroker, mechanism: Mechanism, error: Exception) -> None:
    mechanism.error = error
    with logging_in(broker, mechanism) as rig:
        found = rejected(rig)
        assert str(error).partition("] ")[2] in found.message
        assert broker.address(1) in found.message


# What is wrong


@pytest.mark.fault("security", "wrong password: fatal, no storm of retries")
def test_a_wrong_password_is_final_after_one_attempt_and_tried_again_only_when_somebody_asks(
    broker: EmbeddedBroker, mechanism: Mechanism, caplog: pytest.LogCaptureFixture
) -> None:
    mechanism.password = "wrong-word"
    with logging_in(broker, mechanism) as rig:
        error = rejected(rig)
        failed = "failed: SaslAuthenticate failed with SASL_AUTHENTICATION_FAILED"
        assert error.message.startswith(f"{rig.label()}: the SASL login with PLAIN as user 'alice' {failed}")
        assert error.facts["broker"] == broker.address(1)
        assert rig.client.authentication_error(1) is error
        assert rig.metadata.requested == 0
        rig.pass_ms(60_000)
        for _ in range(5):
            rig.poll()
        assert len(rig.opened) == 1
        mechanism.password = PASSWORD
        rig.connected()
        assert rig.client.authentication_error(1) is None
    said = [record for record in caplog.records if record.name.startswith("spark_kafka_sink.client")]
    assert [record.levelname for record in said] == ["ERROR"]
    assert "-word" not in caplog.text.replace(PASSWORD, "")


def test_the_back_off_holds_after_a_rejected_login(broker: EmbeddedBroker, mechanism: Mechanism) -> None:
    mechanism.password = "wrong"
    with logging_in(broker, mechanism) as rig:
        rejected(rig)
        delay = rig.client.poll_delay_ms(1, rig.now_ms)
        assert 0 < delay <= 60
        rig.ready()
        assert len(rig.opened) == 1
        rig.pass_ms(delay)
        rejected(rig)
        assert rig.client.poll_delay_ms(1, rig.now_ms) > 60


def test_a_node_that_rejected_the_login_is_not_asked_while_another_is_only_busy(
    broker: EmbeddedBroker, mechanism: Mechanism
) -> None:
    with logging_in(broker, mechanism) as rig:
        channel = rig.connected(1)
        broker.faults.fail(ApiKey.SASL_AUTHENTICATE, ErrorCode.SASL_AUTHENTICATION_FAILED, broker=2)
        rejected(rig, 2)
        rig.pass_ms(1_000)
        channel.room = 0
        rig.send("on its way")
        assert rig.client.least_loaded_node(rig.now_ms) is None
        channel.room = None
        rig.responses()
        assert rig.client.least_loaded_node(rig.now_ms) == 1
        broker.faults.unreachable(1)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.client.least_loaded_node(rig.now_ms) == 2


def wrong_answers() -> list[Any]:
    return [
        pytest.param(lambda faults, api: faults.truncate(api), DisconnectedError, id="truncated"),
        pytest.param(lambda faults, api: faults.wrong_correlation_id(api), ProtocolError, id="another's answer"),
        pytest.param(lambda faults, api: faults.cut_before(api), DisconnectedError, id="no answer"),
        pytest.param(lambda faults, api: faults.cut_after(api), DisconnectedError, id="closed"),
        pytest.param(lambda faults, api: faults.fail(api, ErrorCode.REQUEST_TIMED_OUT), None, id="an error that passes"),
    ]


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
@pytest.mark.parametrize(("go_wrong", "kind"), wrong_answers())
def test_a_login_that_is_disturbed_is_tried_again(
    broker: EmbeddedBroker, mechanism: Mechanism, api: ApiKey, go_wrong: Callable[..., object], kind: type | None
) -> None:
    with logging_in(broker, mechanism) as rig:
        go_wrong(broker.faults, api)
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert rig.client.why_not_ready(1)
        assert not rig.client.rejections
        rig.pass_ms(100)
        rig.connected()


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_a_broker_that_never_answers_a_login_is_given_up(broker: EmbeddedBroker, mechanism: Mechanism, api: ApiKey) -> None:
    with logging_in(broker, mechanism) as rig:
        held = broker.faults.hold(api)
        rig.ready()
        rig.poll_until(lambda: held.hits)
        rig.pass_ms(REQUEST_TIMEOUT_MS)
        rig.poll()
        assert rig.client.is_unavailable(1)
        assert "30,000 ms" in str(rig.client.why_not_ready(1))
        assert not rig.client.rejections


def test_an_answer_of_half_a_megabyte_is_too_large_before_the_login_and_not_after_it(
    broker: EmbeddedBroker, mechanism: Mechanism
) -> None:
    with logging_in(broker, mechanism) as rig:
        huge = SaslAuthenticateResponse(auth_bytes=bytes(600_000))
        broker.faults.answer(ApiKey.SASL_AUTHENTICATE, lambda _body: huge)
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert "but the size must be 1 to 524,288" in str(rig.client.why_not_ready(1))
        rig.pass_ms(100)
        channel = rig.connected()
        held = rig.send_held(1)
        channel.change = lambda came: b"\0\x0f\0\0" + bytes(1000)
        held.remove()
        assert channel.waits_to_be_read()
        rig.poll()
        assert not rig.client.is_unavailable(1)


def test_mechanisms_of_a_server_that_lists_none(broker: EmbeddedBroker, mechanism: Mechanism) -> None:
    with logging_in(broker, mechanism) as rig:
        none = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        broker.faults.answer(ApiKey.SASL_HANDSHAKE, lambda _body: none)
        assert "It offers none." in rejected(rig).message


# Staying logged in


def test_a_session_is_renewed_behind_what_is_in_flight_and_new_requests_wait(
    sessions: EmbeddedBroker, mechanism: Mechanism
) -> None:
    with logging_in(sessions, mechanism) as rig:
        channel = rig.connected()
        held = rig.send_held(3)
        rig.pass_ms(int(0.95 * SESSION_MS))
        rig.poll()
        assert not rig.ready()
        assert not rig.client.is_unavailable(1)
        held.remove()
        responses = rig.responses(3)
        assert [response.tag for response in responses] == [0, 1, 2]
        assert errors(responses) == {None}
        rig.poll_until(rig.ready)
        assert asked(channel)[-2:] == ["SASL_HANDSHAKE", "SASL_AUTHENTICATE"]
        assert len(rig.opened) == 1
        assert rig.metadata.requested == 0
        rig.send("after")
        assert errors(rig.responses()) == {None}


def test_a_session_is_not_renewed_before_85_percent_of_it(sessions: EmbeddedBroker, mechanism: Mechanism) -> None:
    with logging_in(sessions, mechanism) as rig:
        rig.connected()
        rig.send()
        rig.responses()
        rig.pass_ms(int(0.85 * SESSION_MS) - 1)
        rig.poll()
        assert rig.ready()


def test_a_poll_ends_in_time_for_the_renewal(sessions: EmbeddedBroker, mechanism: Mechanism) -> None:
    with logging_in(sessions, mechanism) as rig:
        channel = rig.connected()
        rig.send()
        rig.responses()
        rig.pass_ms(int(0.85 * SESSION_MS))
        rig.poll(HOUR_MS)
        rig.pass_ms(SESSION_MS // 10)
        rig.poll_until(lambda: asked(channel).count("SASL_AUTHENTICATE") == 2)


def test_a_refused_renewal_ends_the_connection_after_all_is_answered(sessions: EmbeddedBroker, mechanism: Mechanism) -> None:
    with logging_in(sessions, mechanism) as rig:
        rig.connected()
        held = rig.send_held(2)
        mechanism.password = "changed"
        rig.pass_ms(int(0.95 * SESSION_MS))
        rig.poll()
        held.remove()
        assert errors(rig.responses(2)) == {None}
        rig.poll_until(lambda: rig.client.rejections)
        assert "SASL_AUTHENTICATION_FAILED" in rig.client.take_rejections()[1].error.message
        assert rig.client.is_unavailable(1)


def test_a_session_that_cannot_be_renewed_for_want_of_a_token_ends_after_all_is_answered(
    sessions: EmbeddedBroker, mechanism: Mechanism
) -> None:
    with logging_in(sessions, mechanism) as rig:
        rig.connected()
        held = rig.send_held(2)
        mechanism.error = AuthenticationError("the token is dead")
        rig.pass_ms(int(0.95 * SESSION_MS))
        rig.poll()
        assert not rig.client.is_unavailable(1)
        held.remove()
        assert errors(rig.responses(2)) == {None}
        rig.poll_until(lambda: rig.client.rejections)
        assert "the token is dead" in rig.client.take_rejections()[1].error.message


def test_requests_go_on_while_a_token_for_the_renewal_is_fetched(sessions: EmbeddedBroker, mechanism: Mechanism) -> None:
    with logging_in(sessions, mechanism) as rig:
        channel = rig.connected()
        rig.send()
        rig.responses()
        mechanism.is_fetching = True
        rig.pass_ms(int(0.85 * SESSION_MS))
        while len(mechanism.asked) == 1:  # until it is due
            rig.pass_ms(SESSION_MS // 100)
            rig.poll()
        assert rig.now_ms < 1_000_000 + SESSION_MS
        rig.send("meanwhile")
        assert errors(rig.responses()) == {None}
        mechanism.is_fetching = False
        mechanism.wakeup()
        rig.poll_until(lambda: asked(channel).count("SASL_AUTHENTICATE") == 2)
        rig.poll_until(rig.ready)
        assert len(rig.opened) == 1


def test_an_idle_connection_ends_with_its_session_and_is_made_again_quietly(
    sessions: EmbeddedBroker, mechanism: Mechanism, caplog: pytest.LogCaptureFixture
) -> None:
    with logging_in(sessions, mechanism) as rig:
        channel = rig.connected()
        rig.pass_ms(2 * SESSION_MS)
        rig.poll()
        assert channel.is_closed
        assert not rig.client.is_unavailable(1)
        assert rig.client.poll_delay_ms(1, rig.now_ms) == 0
        assert rig.metadata.requested == 0
        rig.connected()
        assert rig.metadata.failures == []
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_what_is_in_flight_when_a_session_is_over_is_answered_before_the_connection_is_replaced(
    sessions: EmbeddedBroker, mechanism: Mechanism
) -> None:
    with logging_in(sessions, mechanism) as rig:
        first = rig.connected()
        held = rig.send_held(2)
        rig.pass_ms(2 * SESSION_MS)
        rig.poll()
        assert not rig.ready()
        assert not first.is_closed
        held.remove()
        assert errors(rig.responses(2)) == {None}
        rig.poll_until(lambda: first.is_closed)
        assert not rig.client.is_unavailable(1)
        rig.connected()


def test_a_session_too_short_for_another_renewal_gets_a_new_connection(mechanism: Mechanism) -> None:
    """A broker takes no second renewal within a second of the first (KIP-368)."""
    with broker_with_sessions(MIN_REAUTHENTICATION_MS) as broker, logging_in(broker, mechanism) as rig:
        rig.connected()
        rig.send()
        rig.responses()
        rig.pass_ms(int(0.95 * MIN_REAUTHENTICATION_MS))
        rig.poll()
        assert not rig.ready()
        rig.poll_until(rig.ready)
        assert len(rig.opened) == 1
        rig.send()
        rig.responses()
        rig.pass_ms(int(0.95 * MIN_REAUTHENTICATION_MS))
        rig.poll_until(lambda: rig.opened[0].is_closed)
        assert not rig.client.is_unavailable(1)
        rig.connected()
        assert not rig.client.rejections
