"""The broker's ssl.SSLContext, from Kafka's settings `ssl.*`."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.errors import OptionError

_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(config: BrokerConfig) -> ssl.SSLContext:
    """Returns the context for all TLS connections of a broker. Raises OptionError, whose text never contains a key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols if name in _VERSIONS]
    if not versions:
        raise OptionError(f"ssl.enabled.protocols must include one of {', '.join(_VERSIONS)}", option="ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    _load_key(context, config)
    if config.ssl_client_auth not in _CLIENT_AUTH:
        text = f"ssl.client.auth={config.ssl_client_auth!r} must be one of {', '.join(_CLIENT_AUTH)}"
        raise OptionError(text, option="ssl.client.auth")
    context.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, config)
    return context


def _load_key(context: ssl.SSLContext, config: BrokerConfig) -> None:
    # Without a callback, OpenSSL would ask for a password on the terminal.
    password = config.ssl_key_password or ""
    location = config.ssl_keystore_location
    option = "ssl.keystore.key" if location is None else "ssl.keystore.location"
    try:
        if location is not None:
            _readable(location, option)
            context.load_cert_chain(location, password=lambda: password)
        elif config.ssl_keystore_key and config.ssl_keystore_certificate_chain:
            with _as_file(f"{config.ssl_keystore_key}\n{config.ssl_keystore_certificate_chain}\n") as path:
                context.load_cert_chain(path, password=lambda: password)
        else:
            text = "a TLS listener needs ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key"
            raise OptionError(f"{text}; EmbeddedBroker(tls=True) generates them", option="ssl.keystore.location")
    except ssl.SSLError as error:
        held = Path(location).read_text(errors="replace") if location is not None else config.ssl_keystore_key or ""
        why = "the key needs another ssl.key.password" if "ENCRYPTED" in held else str(error)
        text = f"{option} is not a private key and its certificates in PEM: {why}"
        raise OptionError(text, option=option) from None


def _load_trust(context: ssl.SSLContext, config: BrokerConfig) -> None:
    option = "ssl.truststore.location"
    try:
        if config.ssl_truststore_location is not None:
            _readable(config.ssl_truststore_location, option)
            context.load_verify_locations(cafile=config.ssl_truststore_location)
        elif config.ssl_truststore_certificates:
            option = "ssl.truststore.certificates"
            context.load_verify_locations(cadata=config.ssl_truststore_certificates)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except ssl.SSLError as error:
        raise OptionError(f"{option} does not contain certificates in PEM: {error}", option=option) from None


def _readable(path: str, option: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise OptionError(f"{option}: {path} cannot be read: {error.strerror}", option=option) from None


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Yields the path of a file with the text, because OpenSSL reads keys only from files. In memory where the OS supports it."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("key"), "w", encoding="ascii") as memory:
            memory.write(pem)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:  # readable only by this user
        file.write(pem)
        file.flush()
        yield file.name
