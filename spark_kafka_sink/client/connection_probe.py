"""Probes several addresses at once: connects and makes the TLS handshake, but sends no request."""

from __future__ import annotations

import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final

from spark_kafka_sink.client.connection_states import ConnectionState
from spark_kafka_sink.client.protocol_probe import ProbeChannel, Question, question_after
from spark_kafka_sink.client.sasl_login import BrokerAddress
from spark_kafka_sink.errors import DisconnectedError, KafkaSinkError
from spark_kafka_sink.network.channel import SYSTEM_DEFAULT, Address, Channel, PlainChannel, address_text
from spark_kafka_sink.network.selector import Wakeup
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.channel_opener import ChannelOpener

NOT_REACHED: Final = (
    "check the address, that the broker runs, and that no firewall is in the way; inside Docker or Kubernetes, localhost is the"
    " container itself"
)
"""What to do if no broker can be reached."""

HostPort = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProbedConnection:
    """A connection that succeeded. tls: its protocol, "" without TLS. certificate: the broker's, as the ssl module returns it."""

    tls: str = ""
    certificate: Mapping[str, Any] = field(default_factory=dict)


ProbeResult = ProbedConnection | KafkaSinkError
"""A connection, or the reason of its failure: DisconnectedError, or AuthenticationError of a TLS handshake."""


def probe_connections(config: ProducerConfig, hosts: Iterable[HostPort], deadline: float) -> dict[HostPort, ProbeResult]:
    """Looks up all hosts and connects to them at the same time, and closes the connections.

    A host's addresses are tried in turn. Each has an equal share of the time that is left, so one that never answers leaves time
    for the next. If a port closes the connection during the TLS handshake, one more connection finds out whether it speaks plain
    text.

    Raises OptionError if a file of TLS is invalid. deadline: on time.monotonic's clock.
    """
    opener = ChannelOpener(config.security)
    wakeup = Wakeup()
    attempts = [_Attempt(opener, config.security, host, port, deadline) for host, port in hosts]
    with selectors.DefaultSelector() as selector:
        selector.register(wakeup, EVENT_READ)
        try:
            for attempt in attempts:
                attempt.look_up(wakeup)
            while waiting := [each for each in attempts if each.result is None]:
                ends = min(each.until for each in waiting)
                for key, _ in selector.select(max(0.0, ends - time.monotonic())):
                    if key.data is None:
                        wakeup.drain()
                    else:
                        key.data.go_on(selector)
                for attempt in waiting:
                    attempt.start_if_found(selector)
                    attempt.end_if_late(selector)
        finally:
            for attempt in attempts:
                attempt.close(selector)
            wakeup.close()
    return {(each.host, each.port): each.result for each in attempts if each.result is not None}


class _Attempt:
    """The attempt to connect to one host.

    Attributes:
        result: the connection or the reason of the failure; None while it is under way.
        until: when the address that is being tried has had its share of the time.
    """

    def __init__(self, opener: ChannelOpener, security: SecurityConfig, host: str, port: int, deadline: float) -> None:
        self.host = host
        self.port = port
        self.result: ProbeResult | None = None
        self.until = deadline
        self._opener = opener
        self._security = security
        self._deadline = deadline
        self._found: list[Address] | KafkaSinkError | OSError | None = None  # None while the system looks for the name
        self._addresses: deque[Address] | None = None
        self._address: Address | None = None
        self._channel: Channel | None = None
        self._registered = -1
        self._is_connected = False
        self._closed_by: Exception | None = None
        """Why the address closed the connection, while another connection asks which protocol it speaks."""

    def look_up(self, wakeup: Wakeup) -> None:
        """Looks for the host's addresses in a thread, because the system's resolver has time limits of its own."""

        def resolve() -> None:
            try:
                self._found = list(self._opener.resolve(self.host, self.port))
            except (KafkaSinkError, OSError) as error:
                self._found = error
            wakeup.wakeup()

        threading.Thread(target=resolve, name="kafka-sink-look-up", daemon=True).start()

    def start_if_found(self, selector: selectors.BaseSelector) -> None:
        """Begins with the first address once the addresses are known."""
        if self._addresses is not None or self._found is None or self.result is not None:
            return
        if isinstance(self._found, KafkaSinkError):
            self.result = self._found
        elif isinstance(self._found, OSError):
            self.result = self._failure(self._found)
        else:
            self._addresses = deque(self._found)
            self.next_address(selector)

    def next_address(self, selector: selectors.BaseSelector, before: Exception | None = None) -> None:
        """Begins to connect to the next address; without one, the last failure is the result."""
        self._closed_by = None
        if not self._addresses:
            self.result = self._failure(before)
            return
        try:
            now = time.monotonic()
            self.until = now + max(0.0, self._deadline - now) / len(self._addresses)
            self._is_connected = False
            self._address = self._addresses.popleft()
            self._channel = self._opener.open(
                self._address, host=self.host, port=self.port, send_buffer=SYSTEM_DEFAULT, receive_buffer=SYSTEM_DEFAULT
            )
        except KafkaSinkError as error:
            self.result = error
        except OSError as error:
            self.next_address(selector, error)
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
            question = self._question()
            if question is not None:
                self._ask(selector, question, error)
            else:
                self.next_address(selector, self._closed_by or error)

    def end_if_late(self, selector: selectors.BaseSelector) -> None:
        """Gives up on the current address once it has had its share of the time."""
        if self.result is None and time.monotonic() >= self.until:
            self.close(selector)
            self.next_address(selector, self._closed_by or self._overdue())

    def close(self, selector: selectors.BaseSelector) -> None:
        if self._registered >= 0:
            selector.unregister(self._registered)
            self._registered = -1
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _question(self) -> Question | None:
        """Returns what to ask a port that closed the connection during the TLS handshake; None for any other failure."""
        if not self._is_connected or self._closed_by is not None or self._security.proxy_url is not None:
            return None
        address = BrokerAddress(f"broker {address_text(self.host, self.port)}", self.host, self.port)
        return question_after(ConnectionState.CONNECTING, address, self._security)

    def _ask(self, selector: selectors.BaseSelector, question: Question, closed_by: Exception) -> None:
        assert self._address is not None
        try:
            channel = PlainChannel.connect(self._address)
        except OSError:
            self.next_address(selector, closed_by)
            return
        self._closed_by, self._is_connected = closed_by, False
        self._channel = ProbeChannel(channel, question)
        self._watch(selector, EVENT_WRITE)

    def _overdue(self) -> DisconnectedError:
        address = address_text(self.host, self.port)
        if self._addresses is None:
            return DisconnectedError(f"could not connect to {address}: timed out looking up the host name")
        if self._is_connected:
            return DisconnectedError(f"{address} accepted the connection, but did not answer the handshake in time")
        return DisconnectedError(f"timed out connecting to {address}")

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
        if isinstance(error, DisconnectedError):
            return error
        address = address_text(self.host, self.port)
        if isinstance(error, EOFError):
            return DisconnectedError(f"{address} closed the connection during the handshake")
        reason = "the name has no address" if error is None else getattr(error, "strerror", None) or str(error)
        return DisconnectedError(f"could not connect to {address}: {reason}")


def _described(channel: Channel) -> ProbedConnection:
    if isinstance(channel, TlsChannel):
        return ProbedConnection(channel.protocol(), channel.peer_certificate() or {})
    return ProbedConnection()
