"""The SASL logins of a client's connections: those in progress, and when each must be repeated (KIP-368)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.connection_states import ClusterConnectionStates
from spark_kafka_sink.client.in_flight import InFlightRequests
from spark_kafka_sink.client.sasl_login import BrokerAddress, LoginRequest, SaslLogin
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, KafkaSinkError, OptionError, PeerError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.security.sasl.mechanism import SaslMechanism

MIN_REAUTHENTICATION_MS: Final = 1_100
"""A broker rejects a re-authentication within 1 s of the previous one (KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS)."""

LIFETIME_USED: Final = (0.85, 0.95)
"""Random fraction of a session after which it is renewed, as in Java, to spread the renewals of connections opened together."""


class ConnectionEnd(NamedTuple):
    """A connection to be closed. `idle`: whether closing it is not a failure."""

    node_id: int
    error: PeerError
    idle: bool = False


@dataclass(slots=True)
class _Login:
    """A login in progress. `request`: to be sent as soon as the connection accepts it. `renews`: the session that it renews."""

    exchange: SaslLogin
    broker: BrokerAddress
    versions: NodeApiVersions
    renews: Session | None = None
    request: LoginRequest | None = None
    waits_for_token: bool = True


@dataclass(slots=True)
class Session:
    """A login that the broker keeps until `ends_ms`. `due_ms`: when to renew it. `is_used`: whether it was used since it began.

    is_ending: nothing new is sent, and the connection is closed after the last response, with `error` if there is one.
    """

    broker: BrokerAddress
    versions: NodeApiVersions
    began_ms: int
    due_ms: int
    ends_ms: int
    was_renewed: bool
    is_used: bool = False
    is_ending: bool = False
    error: PeerError | None = None

    @property
    def last_ms(self) -> int:
        """Returns the time until which a renewal may wait for a token; requests continue meanwhile."""
        return (self.due_ms + self.ends_ms) // 2

    def may_be_renewed(self, now_ms: int) -> bool:
        """Returns whether the session can be renewed; otherwise a new connection is needed."""
        is_early = self.was_renewed and now_ms - self.began_ms < MIN_REAUTHENTICATION_MS
        return self.is_used and self.error is None and now_ms < self.ends_ms and not is_early


class SaslSessions:
    """Logs in over connections and keeps the sessions, by node id. Owned by the thread of Connections; times are monotonic ms.

    The caller closes the returned connections and then calls `forget`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        mechanism: SaslMechanism,
        states: ClusterConnectionStates,
        in_flight: InFlightRequests,
        send: Callable[[int, LoginRequest, int], bool],
        rng: random.Random,
    ) -> None:
        """send: sends a request to a node, at a time; returns False if another one is still on its way there."""
        security = config.security
        self._protocol = security.security_protocol
        self._request_timeout_ms = config.request_timeout_ms
        self._token_timeout_ms = max(1_000, security.sasl_login_connect_timeout_ms + security.sasl_login_read_timeout_ms)
        self._mechanism = mechanism
        self._states = states
        self._in_flight = in_flight
        self._send = send
        self._rng = rng
        self._under_way: dict[int, _Login] = {}
        self.sessions: dict[int, Session] = {}

    def begin(self, node_id: int, broker: BrokerAddress, versions: NodeApiVersions, now_ms: int) -> ConnectionEnd | None:
        """Begins the login on a new connection."""
        self._states.authenticating(node_id, now_ms + self._token_timeout_ms)
        return self._ask_for_token(node_id, self._new(node_id, broker, versions), now_ms)

    def answered(self, node_id: int, body: Message, now_ms: int) -> ConnectionEnd | None:
        """Handles a response. Afterwards `is_under_way` returns False if the login is complete."""
        login = self._under_way[node_id]
        try:
            login.request = login.exchange.answered(body)
        except (PeerError, OptionError) as error:
            return ConnectionEnd(node_id, final_error(error, login.broker))
        if login.exchange.is_complete:
            self._complete(node_id, login, now_ms)
        else:
            self._send_next(node_id, login, now_ms)
        return None

    def is_under_way(self, node_id: int) -> bool:
        return node_id in self._under_way

    def close(self) -> None:
        """Ends the mechanism's background work."""
        self._mechanism.close()

    def forget(self, node_id: int) -> None:
        """Forgets a closed connection."""
        self._under_way.pop(node_id, None)
        self.sessions.pop(node_id, None)

    def tend(self, now_ms: int) -> list[ConnectionEnd]:
        """Continues logins that wait for a token or for their connection, and renews or ends sessions that are due."""
        ends = []
        for node_id, login in list(self._under_way.items()):
            if login.waits_for_token:
                ends.append(self._ask_for_token(node_id, login, now_ms))
            else:
                self._send_next(node_id, login, now_ms)
        for node_id, session in list(self.sessions.items()):
            login_or_none = self._under_way.get(node_id)
            if session.due_ms <= now_ms and (login_or_none is None or login_or_none.waits_for_token):
                ends.append(self._renew_or_end(node_id, session, now_ms))
        return [end for end in ends if end is not None]

    def next_due_ms(self, now_ms: int) -> int | None:
        """Returns the latest time to call `tend` if nothing else happens; None if nothing is due."""
        times = (session.due_ms if session.due_ms > now_ms else session.last_ms for session in self.sessions.values())
        return min((time_ms for time_ms in times if time_ms > now_ms), default=None)

    def why_late(self, node_id: int) -> str | None:
        """Returns the reason why a login took too long; None if there is no login."""
        login = self._under_way.get(node_id)
        if login is None:
            return None
        if login.waits_for_token:
            limit = f"{self._token_timeout_ms:,} ms (sasl.login.connect.timeout.ms + sasl.login.read.timeout.ms)"
            return f"there was no token for the SASL login at {login.broker.label} within {limit}"
        limit = f"{self._request_timeout_ms:,} ms (request.timeout.ms)"
        return f"the SASL login at {login.broker.label} was not complete within {limit}"

    # Internals

    def _new(self, node_id: int, broker: BrokerAddress, versions: NodeApiVersions, renews: Session | None = None) -> _Login:
        exchange = SaslLogin(self._mechanism, broker, versions, self._protocol)
        login = self._under_way[node_id] = _Login(exchange, broker, versions, renews)
        return login

    def _ask_for_token(self, node_id: int, login: _Login, now_ms: int) -> ConnectionEnd | None:
        """Sends the first request, unless the mechanism is still fetching a token."""
        try:
            login.request = login.exchange.begin()
        except (PeerError, OptionError) as error:
            failure = final_error(error, login.broker)
            if login.renews is None:
                return ConnectionEnd(node_id, failure)
            # Requests in flight may still be answered in the current session.
            login.renews.error = failure
            return None
        if login.request is None:
            return None
        login.waits_for_token = False
        if login.renews is None:
            self._states.authenticating(node_id, now_ms + self._request_timeout_ms)
        else:
            self._states.reauthenticating(node_id)
        self._send_next(node_id, login, now_ms)
        return None

    def _send_next(self, node_id: int, login: _Login, now_ms: int) -> None:
        if login.request is not None and self._send(node_id, login.request, now_ms):
            login.request = None

    def _complete(self, node_id: int, login: _Login, now_ms: int) -> None:
        self.forget(node_id)
        lifetime_ms = login.exchange.session_lifetime_ms
        if lifetime_ms > 0:
            due_ms = now_ms + int(lifetime_ms * self._rng.uniform(*LIFETIME_USED))
            was_renewed = login.renews is not None
            session = Session(login.broker, login.versions, now_ms, due_ms, now_ms + lifetime_ms, was_renewed)
            self.sessions[node_id] = session

    def _renew_or_end(self, node_id: int, session: Session, now_ms: int) -> ConnectionEnd | None:
        """Renews a session behind the requests in flight. A session that is unused, or cannot be renewed, ends with its
        connection after the last response, and the next request opens a new one."""
        if not session.is_ending:
            if session.may_be_renewed(now_ms) and node_id not in self._under_way:
                login = self._new(node_id, session.broker, session.versions, session)
                self._ask_for_token(node_id, login, now_ms)
            begun = self._under_way.get(node_id)
            is_late = begun is None or (begun.waits_for_token and now_ms >= session.last_ms)
            if session.may_be_renewed(now_ms) and not is_late:
                return None
            self._under_way.pop(node_id, None)
            session.is_ending = True
            self._states.reauthenticating(node_id)
        if self._in_flight.count(node_id):
            return None
        ended = DisconnectedError(f"the session at {session.broker.label} ended")
        return ConnectionEnd(node_id, session.error or ended, idle=session.error is None)


def final_error(error: KafkaSinkError, broker: BrokerAddress) -> PeerError:
    """Returns the error as a PeerError; a setting that is no longer usable, such as a missing file, becomes one as well."""
    if isinstance(error, PeerError):
        return error
    return AuthenticationError(f"{broker.label}: {error.message}", **{"broker": str(broker)} | error.facts)
