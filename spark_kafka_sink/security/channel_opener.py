"""Opens connections as the settings of security say."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.network.channel import Address, Channel, PlainChannel, resolve
from spark_kafka_sink.security_config import SecurityConfig


class ChannelOpener:
    """Resolves brokers' addresses and begins to connect to them."""

    def __init__(self, config: SecurityConfig) -> None:
        self._config = config

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Returns the addresses to connect to for a broker. Raises OSError if there is none."""
        return resolve(host, port)

    def open(self, address: Address, *, host: str, port: int, send_buffer: int, receive_buffer: int) -> Channel:
        """Begins to connect to the broker `host`:`port` at one of its addresses. Raises OSError if that fails at once."""
        return PlainChannel.connect(address, send_buffer=send_buffer, receive_buffer=receive_buffer)
