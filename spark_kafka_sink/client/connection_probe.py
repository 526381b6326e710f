"""Probes several addresses at once: connects and makes the TLS handshake, but sends no request."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import DisconnectedError, KafkaSinkError
from spark_kafka_sink.network.channel import SYSTEM_DEFAULT, Address, Channel
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.security.channel_opener import ChannelOpener

HostPort = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProbedConnection:
    """A connection that succeeded. tls: its protocol, "" without TLS. certificate: the broker's, as the ssl module returns it."""

    tls: str = ""
    certificate: Mapping[str, Any] = field(default_factory=dict)


ProbeResult = ProbedConnection | KafkaSinkError
"""A connection, or the reason of its failure: DisconnectedError, or AuthenticationError of a TLS handshake."""


def probe_connections(config: ProducerConfig, hosts: Iterable[HostPort], deadline: float) -> dict[HostPort, ProbeResult]:
    """Connects to each host, trying its addresses in turn, and closes the connection.

    Only the system's resolver may take longer than `deadline`, which is on time.monotonic's clock. Raises OptionError if
    a file of TLS is invalid.
    """
    opener = ChannelOpener(config.security)
    waiting = {_Attempt(opener, host, port) for host, port in hosts}
    results: dict[HostPort, ProbeResult] = {}
    with selectors.DefaultSelector() as selector:
        try:
            for attempt in list(waiting):
                attempt.next_address(selector)
            while waiting:
                for attempt in [each for each in waiting if each.result is not None]:
                    waiting.discard(attempt)
                    assert attempt.result is not None
                    results[attempt.host, attempt.port] = attempt.result
                left_s = deadline - time.monotonic()
                if not waiting or left_s <= 0:
                    break
                for key, _ in selector.select(left_s):
                    key.data.go_on(selector)
        finally:
            for attempt in waiting:
                attempt.close(selector)
    late = {(each.host, each.port): each.overdue() for each in waiting}
    return {**results, **late}


class _Attempt:
    """The attempt to connect to one host."""

    def __init__(self, opener: ChannelOpener, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.result: ProbeResult | None = None
        self._opener = opener
        self._addresses: deque[Address] | None = None
        self._channel: Channel | None = None
        self._registered = -1
        self._is_connected = False

    def next_address(self, selector: selectors.BaseSelector, before: Exception | None = None) -> None:
        """Begins to connect to the next address; without one, the last failure is the result."""
        try:
            if self._addresses is None:
                self._addresses = deque(self._opener.resolve(self.host, self.port))
            if not self._addresses:
                self.result = self._failure(before)
                return
            self._is_connected = False
            self._channel = self._opener.open(
                self._addresses.popleft(),
                host=self.host,
                port=self.port,
                send_buffer=SYSTEM_DEFAULT,
                receive_buffer=SYSTEM_DEFAULT,
            )
        except KafkaSinkError as error:
            self.result = error
        except OSError as error:
            if self._addresses:
                self.next_address(selector, error)
            else:
                self.result = self._failure(error)
        else:
            self._watch(selector, EVENT_WRITE)

    def go_on(self, selector: selectors.BaseSelector) -> None:
        assert self._channel is not None
        try:
            if not self._is_connected:
                self._is_connected = self._channel.finish_connect()
            if self._is_connected and self._channel.handshake():
                self.result = _described(self._channel)
                self.close(selector)
            elif self._is_connected:
                self._watch(selector, self._channel.interest)
        except KafkaSinkError as error:
            self.close(selector)
            self.result = error
        except (OSError, EOFError) as error:
            self.close(selector)
            self.next_address(selector, error)

    def close(self, selector: selectors.BaseSelector) -> None:
        if self._registered >= 0:
            selector.unregister(self._registered)
            self._registered = -1
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def overdue(self) -> DisconnectedError:
        if self._is_connected:
            return DisconnectedError(f"{self.host}:{self.port} accepted the connection, but did not answer the handshake in time")
        return DisconnectedError(f"timed out connecting to {self.host}:{self.port}")

    def _watch(self, selector: selectors.BaseSelector, events: int) -> None:
        assert self._channel is not None
        descriptor = self._channel.fileno()  # another one once TLS has taken over the socket
        if self._registered == descriptor:
            selector.modify(descriptor, events, self)
            return
        if self._registered >= 0:
            selector.unregister(self._registered)
        selector.register(descriptor, events or EVENT_READ, self)
        self._registered = descriptor

    def _failure(self, error: Exception | None) -> DisconnectedError:
        if isinstance(error, EOFError):
            return DisconnectedError(f"{self.host}:{self.port} closed the connection during the handshake")
        reason = "the name has no address" if error is None else getattr(error, "strerror", None) or str(error)
        return DisconnectedError(f"could not connect to {self.host}:{self.port}: {reason}")


def _described(channel: Channel) -> ProbedConnection:
    if isinstance(channel, TlsChannel):
        return ProbedConnection(channel.protocol(), channel.peer_certificate() or {})
    return ProbedConnection()
