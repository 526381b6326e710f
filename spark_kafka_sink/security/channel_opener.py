"""Opens connections according to the security options: plain or TLS, direct or through a proxy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_kafka_sink.network.channel import Address, Channel, PlainChannel, resolve
from spark_kafka_sink.options.security_config import SecurityConfig

if TYPE_CHECKING:
    from spark_kafka_sink.network.proxy import Proxy
    from spark_kafka_sink.security.tls_context import ReloadingTls

logger = logging.getLogger(__name__)


class ChannelOpener:
    """Opens connections to brokers. Owned by one thread; its TLS contexts are shared by the process.

    Modules that plain connections do not need, such as ssl, are not imported for them.
    """

    def __init__(self, config: SecurityConfig) -> None:
        """Reads keys and certificates. Raises OptionError if an option or its file is invalid."""
        self._proxy: Proxy | None = None
        self._tls: ReloadingTls | None = None
        if config.proxy_url is not None:
            from spark_kafka_sink.network.proxy import parse_proxy

            self._proxy = parse_proxy(config.proxy_url)
        if config.uses_tls:
            from spark_kafka_sink.security.tls_context import ReloadingTls

            self._tls = ReloadingTls(config)
            if not config.ssl_endpoint_identification_algorithm:
                logger.warning(
                    "option ssl.endpoint.identification.algorithm is empty: host names of brokers are not verified, so anyone "
                    "with a trusted certificate can impersonate a broker"
                )

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Returns the addresses to connect to: the broker's, or those of the proxy. Raises OSError if there is none."""
        if self._proxy is not None:
            return self._proxy.resolve(host, port)
        return resolve(host, port)

    def open(self, address: Address, *, host: str, port: int, send_buffer: int, receive_buffer: int) -> Channel:
        """Begins to connect to a broker at one of its addresses. Buffer sizes in bytes. Raises OSError if it fails at once."""
        plain = PlainChannel.connect(address, send_buffer=send_buffer, receive_buffer=receive_buffer)
        channel: Channel = plain
        try:
            if self._proxy is not None:
                channel = self._proxy.proxied(plain, host, port)
            if self._tls is not None:
                channel = self._tls.encrypted(channel, host, port)
        except BaseException:
            plain.close()
            raise
        return channel
