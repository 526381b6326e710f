"""Builds an SSLContext from the TLS options: trust, the client's identity, versions and cipher suites.

Everything is read and checked here, so that an invalid file raises OptionError at the start, not a failed connection later.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, NoReturn

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.network.channel import Channel
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.network.tls_failures import FarEnd
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.key_stores import KeyPair, Source, chain, key_pair, private_key, trusted_certificates

logger = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_NEVER: Final = ":!aNULL:!eNULL"
"""Excludes suites without a certificate or without encryption from any selection."""

_PROBE: Final = "probe"
"""librdkafka's value of ssl.ca.location for the system's authorities."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """A context, and what errors say about it. Used by any thread.

    trusted: the trusted authorities. shows_certificate: whether there is a client certificate.
    """

    context: ssl.SSLContext
    trusted: str
    shows_certificate: bool


def client_tls(config: SecurityConfig) -> ClientTls:
    """Reads files and makes the context. Raises OptionError if an option or its file is invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    _choose_versions(context, config)
    _choose_suites(context, config)
    trusted = _trust(context, config)
    identity = _identity(config)
    if identity is not None:
        _show(context, identity, _revealed(config.ssl_key_password or config.ssl_keystore_password))
    return ClientTls(context, trusted, identity is not None)


# Trust


def _trust(context: ssl.SSLContext, config: SecurityConfig) -> str:
    named = config.ssl_truststore_location or config.ssl_ca_location
    location = resolve(named or "")
    is_librdkafkas = not config.ssl_truststore_location
    if named and not location:
        # An empty variable must not mean that every authority of the system is trusted.
        option = "ssl.ca.location" if is_librdkafkas else "ssl.truststore.location"
        _refuse(option, "its reference resolves to an empty value, must be the authorities to trust")
    if config.ssl_truststore_certificates is not None:
        source, data = (
            Source("ssl.truststore.certificates"),
            config.ssl_truststore_certificates.reveal().encode(errors="surrogatepass"),
        )
        trusted = "the certificates of ssl.truststore.certificates"
    elif not location or (is_librdkafkas and location == _PROBE):
        context.load_default_certs()
        return "the system's authorities"
    elif is_librdkafkas and os.path.isdir(location):
        context.load_verify_locations(capath=location)
        return f"those in the folder {location}"
    else:
        source = Source("ssl.ca.location" if is_librdkafkas else "ssl.truststore.location", location)
        data = source.read()
        trusted = f"the certificates in {location}"
    # As in Java, a listed certificate is trusted, even if its issuer is not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    certificates = trusted_certificates(source, data, _revealed(config.ssl_truststore_password))
    try:
        context.load_verify_locations(cadata=b"".join(certificates))
    except ssl.SSLError:
        _name_the_bad_one(source, certificates)
    return trusted


def _name_the_bad_one(source: Source, certificates: list[bytes]) -> NoReturn:
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for number, certificate in enumerate(certificates, start=1):
        try:
            scratch.load_verify_locations(cadata=certificate)
        except ssl.SSLError as error:
            raise source.wrong(f"has a damaged certificate (number {number} of {len(certificates)}): {_reason(error)}") from None
    raise source.wrong("has certificates that OpenSSL cannot load together")


# The client's identity


@dataclass(frozen=True, slots=True)
class _Identity:
    """The client's key and certificates, and their origin."""

    pair: KeyPair
    key_source: Source
    chain_source: Source


def _identity(config: SecurityConfig) -> _Identity | None:
    if config.ssl_keystore_location:
        source = Source("ssl.keystore.location", resolve(config.ssl_keystore_location))
        password = config.ssl_keystore_password or config.ssl_key_password
        return _Identity(key_pair(source, source.read(), _revealed(password)), source, source)
    if config.ssl_keystore_key and config.ssl_keystore_certificate_chain:
        chain_source, key_source = Source("ssl.keystore.certificate.chain"), Source("ssl.keystore.key")
        certificates = config.ssl_keystore_certificate_chain.reveal().encode(errors="surrogatepass")
        key = config.ssl_keystore_key.reveal().encode(errors="surrogatepass")
    elif config.ssl_key_location and config.ssl_certificate_location:
        chain_source = Source("ssl.certificate.location", resolve(config.ssl_certificate_location))
        key_source = Source("ssl.key.location", resolve(config.ssl_key_location))
        certificates, key = chain_source.read(), key_source.read()
    else:
        return None
    return _Identity(KeyPair(private_key(key_source, key), chain(chain_source, certificates)), key_source, chain_source)


def _show(context: ssl.SSLContext, identity: _Identity, password: str | None) -> None:
    if identity.pair.key.is_encrypted and password is None:
        raise identity.key_source.wrong("has an encrypted private key. Set ssl.key.password")
    try:
        with _key_file(identity.pair) as path:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, password=password or "")
    except ssl.SSLError as error:
        raise _unusable(error, identity) from None
    except ValueError:
        raise identity.key_source.wrong(
            "cannot be used: ssl.key.password is longer than the 1,024 bytes that OpenSSL allows"
        ) from None


def _unusable(error: ssl.SSLError, identity: _Identity) -> OptionError:
    certificates, key = identity.chain_source, identity.key_source
    reason = error.reason or ""
    if reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
        return certificates.wrong(
            "has a certificate that does not match the private key. The first certificate must be that of the key"
        )
    if reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return certificates.wrong(f"has a certificate that is too weak for this machine's OpenSSL ({_reason(error)}). Renew it")
    if identity.pair.key.is_encrypted:
        return key.wrong(
            "has a private key that cannot be decrypted. Check ssl.key.password, or replace the key if it is damaged"
        )
    return key.wrong(f"has a private key or a certificate that is damaged{f': {_reason(error)}' if reason else ''}")


@contextlib.contextmanager
def _key_file(pair: KeyPair) -> Iterator[str]:
    """Yields the path of a file with key and certificates, because the ssl module cannot read them from memory.

    On Linux the file is in memory and has no name. Elsewhere it is in a private folder until it has been read.
    """
    text = b"".join(block.text() for block in (pair.key, *pair.chain))
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.TemporaryDirectory() as folder:  # 0700
        path = os.path.join(folder, "certificate")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        yield path


# Versions and cipher suites


def _choose_versions(context: ssl.SSLContext, config: SecurityConfig) -> None:
    enabled = {_VERSIONS[name] for name in _listed(config.ssl_enabled_protocols or ",".join(_VERSIONS))}
    if config.ssl_protocol:
        # As in Java, a client with TLSv1.2 here does not use TLSv1.3, even if that is enabled.
        enabled = {version for version in enabled if version <= _VERSIONS[config.ssl_protocol]}
    if not enabled:
        _refuse("ssl.protocol", f"{config.ssl_protocol} excludes all versions in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)


def _choose_suites(context: ssl.SSLContext, config: SecurityConfig) -> None:
    if not config.ssl_cipher_suites:
        return
    option = "ssl.cipher.suites"
    names = _listed(config.ssl_cipher_suites)
    new = [name for name in names if name in TLS_1_3_SUITES]
    old = [name for name in names if name not in TLS_1_3_SUITES]
    for name in old:
        try:
            context.set_ciphers(openssl_name(name) + _NEVER)
        except ssl.SSLError:
            _refuse(option, f"OpenSSL has no cipher suite {name!r}. Use IETF or OpenSSL names")
    # As in Java, a version without a suite is not used.
    if not new:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    elif set(new) != TLS_1_3_SUITES:
        logger.warning(
            "option %s: Python's ssl module cannot choose among the suites of TLS 1.3. It offers %s",
            option,
            ", ".join(sorted(TLS_1_3_SUITES)),
        )
    if old:
        context.set_ciphers(":".join(map(openssl_name, old)) + _NEVER)
    else:
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_3)
    if context.minimum_version > context.maximum_version:
        _refuse(option, "it has no suite for the versions allowed by ssl.enabled.protocols and ssl.protocol")


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# The context of a process, reloaded when files change


_CACHE: Final[dict[tuple[object, ...], ClientTls]] = {}
"""Contexts by options and file states. It uses atomic dict operations only, because a fork could copy a held lock."""

MAX_CONTEXTS: Final = 16


class ReloadingTls:
    """The context of one configuration, rebuilt when a file or a referenced secret changes. Owned by its opener's thread."""

    def __init__(self, config: SecurityConfig) -> None:
        """Raises OptionError if an option or its file is invalid."""
        self._config = config
        self._options = tuple(getattr(config, field.name) for field in fields(config) if field.name.startswith("ssl_"))
        self._stamp = _stamp(config)
        self._tls = self._made(self._stamp)
        self._told = ""

    def current(self) -> ClientTls:
        """Returns the context for a new connection. Invalid files, such as half-written ones, keep the last valid context."""
        try:
            stamp = _stamp(self._config)
            if stamp != self._stamp:
                self._tls = self._made(stamp)
                self._stamp = stamp
                logger.info("reloaded the TLS certificates, because they have changed")
                self._told = ""
        except OptionError as error:
            if error.message != self._told:
                logger.warning("keeping the TLS certificates that were loaded before: %s", error.message)
                self._told = error.message
        return self._tls

    def encrypted(self, channel: Channel, host: str, port: int) -> TlsChannel:
        """Returns a channel to a broker that encrypts what goes over another one, and takes that over."""
        tls = self.current()
        return TlsChannel(channel, tls.context, FarEnd(channel.peer, host, port, tls.shows_certificate, tls.trusted))

    def _made(self, stamp: tuple[object, ...]) -> ClientTls:
        key = (self._options, stamp)
        found = _CACHE.get(key)
        if found is None:
            found = _CACHE.setdefault(key, client_tls(self._config))
            for oldest in list(_CACHE)[:-MAX_CONTEXTS]:
                _CACHE.pop(oldest, None)
        return found


def _stamp(config: SecurityConfig) -> tuple[object, ...]:
    """Returns values that change with a file (time, size and inode), and a hash of secrets, which may be references."""
    stamps: list[object] = []
    for option, value in config.given().items():
        if not option.startswith("ssl."):
            continue
        if isinstance(value, Secret):
            stamps.append(hash(value.reveal()))
        elif option.endswith(".location") and isinstance(value, str):
            path = resolve(value)
            try:
                found = os.stat(path)
                stamps.append((path, found.st_mtime_ns, found.st_size, found.st_ino))
            except (OSError, ValueError):
                stamps.append((path, None))  # reading it raises the error
    return tuple(stamps)


def _revealed(secret: Secret | None) -> str | None:
    return secret.reveal() if secret is not None else None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or "unknown").replace("_", " ").lower()


def _refuse(option: str, text: str) -> NoReturn:
    raise OptionError(f"option {option}: {text}", option=option)


TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites that OpenSSL offers. It supports the two CCM suites but does not offer them."""

_IETF: Final = re.compile(r"TLS_(?P<exchange>[A-Z_]+?)_WITH_(?P<cipher>\w+?)(?:_(?P<digest>SHA\d*))?")


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name for a suite of TLS 1.2; a name that is not in IETF notation is returned unchanged.

    OpenSSL 3.2 accepts both. Only suites in which the server has a certificate are translated.
    """
    found = _IETF.fullmatch(name)
    if found is None:
        return name
    exchange = found["exchange"].replace("_", "-")
    # AES_128 and CAMELLIA_256 are one word; CBC goes without saying.
    cipher = re.sub(r"(AES|CAMELLIA|ARIA|CCM)_(\d+)", r"\1\2", found["cipher"]).replace("_CBC", "").replace("_", "-")
    if exchange == "RSA" or (exchange == "ECDHE-RSA" and cipher.startswith("ARIA")):
        exchange = exchange.removesuffix("RSA").removesuffix("-")
    # The digest in ChaCha20's names is that of the key derivation, of which there is no choice.
    digest = "" if cipher.startswith("CHACHA20") else found["digest"]
    return "-".join(filter(None, (exchange, cipher, digest)))
