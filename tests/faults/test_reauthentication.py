"""Sessions that end all the time, under a producer that never rests: nothing is lost, doubled, out of order, or even retried."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

import pytest

from spark_kafka_sink.errors import DeliveryError
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.client.sasl import LOGIN, PASSWORD, USER
from tests.faults.conftest import check_numbers
from tests.faults.producing import failing_scope, numbers, producer_on, send
from tests.faults.recording_broker import CONFIG, RecordingBroker
from tests.waiting import wait_until

SETTINGS = {name.replace(".", "_"): value for name, value in LOGIN.items()} | {"sasl_mechanism": "SCRAM-SHA-256"}


def broker_with_sessions_of(ms: int, brokers: int = 2) -> RecordingBroker:
    config = replace(
        CONFIG, sasl_users={USER: PASSWORD}, connections_max_reauth_ms=ms, connection_failed_authentication_delay_ms=10
    )
    return RecordingBroker(brokers, config=config)


def broker_that_tells_of_sessions_of(ms: int) -> RecordingBroker:
    """Its sessions last for a minute more: a client that renews them at 95 % of the time is late on a busy machine."""
    broker = broker_with_sessions_of(60_000 + ms, 1)

    def shorten(_: SaslAuthenticateRequest, answer: SaslAuthenticateResponse) -> SaslAuthenticateResponse:
        return replace(answer, session_lifetime_ms=ms) if answer.session_lifetime_ms else answer

    broker.faults.alter(ApiKey.SASL_AUTHENTICATE, shorten, times=None)
    return broker


@pytest.mark.fault("security", "re-authentication with requests in flight")
def test_requests_in_flight_keep_their_order_across_a_renewal() -> None:
    """Five requests wait at the broker all the time."""
    with broker_that_tells_of_sessions_of(2_000) as cluster:
        cluster.topic()
        with producer_on(cluster.bootstrap_servers, **SETTINGS, batch_size=1) as producer, producer.scope() as scope:
            assert send(producer, numbers([0])) == 1
            seen = cluster.faults.seen(ApiKey.SASL_HANDSHAKE)
            with cluster.faults.delay(ApiKey.PRODUCE, 15, times=None):
                for value in range(1, 201):
                    scope.append("t", numbers([value]))
                scope.flush(30)
            assert cluster.faults.seen(ApiKey.SASL_HANDSHAKE) > seen
            assert not scope.report().errors
        assert cluster.values() == list(range(201))
        assert len(cluster.received) == 201
    check_numbers(cluster)


def failure_of(scope: SendScope) -> str:
    with pytest.raises(DeliveryError) as raised:
        scope.raise_error()
    return str(raised.value)


def test_a_renewal_that_is_refused_loses_nothing_that_was_sent() -> None:
    """Other records fail until the login is right again, and those may be sent again by whoever has them."""
    with broker_with_sessions_of(1_500, brokers=1) as cluster:
        cluster.topic()
        with producer_on(cluster.bootstrap_servers, **SETTINGS, batch_size=1) as producer:
            assert send(producer, numbers([0])) == 1
            stored = 1
            refused = cluster.faults.fail(ApiKey.SASL_AUTHENTICATE, ErrorCode.SASL_AUTHENTICATION_FAILED, times=None)
            failure = ""
            while not failure:
                with failing_scope(producer) as scope:
                    scope.append("t", numbers([stored]))
                    with suppress(DeliveryError):
                        scope.flush(20)
                    failure = "" if scope.report().records else failure_of(scope)
                    stored += scope.report().records
            assert "[AUTHENTICATION]" in failure
            refused.remove()
            assert send(producer, numbers([stored])) == 1
        assert cluster.values() == list(range(stored + 1))


def test_an_idle_producer_says_nothing_when_its_session_ends(caplog: pytest.LogCaptureFixture) -> None:
    with broker_that_tells_of_sessions_of(1_000) as cluster:
        cluster.topic()
        with caplog.at_level(logging.DEBUG), producer_on(cluster.bootstrap_servers, **SETTINGS) as producer:
            assert send(producer, numbers([1])) == 1
            wait_until(lambda: producer.metrics()["producer-metrics"]["connection-count"] == 0, "the end of idle sessions")
            assert send(producer, numbers([2])) == 1
        assert cluster.values() == [1, 2]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
