"""The broker's ssl.SSLContext from Kafka's settings `ssl.*`, and principals from the certificates of clients."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
        text = f"{option} does not contain a private key and its certificates in PEM: {why}"
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


# RFC 2253's short names, which `X500Principal.getName()` uses. Every other attribute is written as its number and DER bytes.
_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_NUMBERS: Final[Mapping[str, tuple[str, int]]] = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),  # IA5String
    "serialNumber": ("2.5.4.5", 0x13),  # PrintableString
    "title": ("2.5.4.12", 0x0C),  # UTF8String
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
    "dnQualifier": ("2.5.4.46", 0x13),
}
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Returns the subject of a certificate from `ssl.SSLSocket.getpeercert`, in the form of RFC 2253: last part first."""
    parts = ("+".join(_attribute(name, value) for name, value in part) for part in reversed(certificate.get("subject", ())))
    return ",".join(parts)


def _attribute(name: str, value: str) -> str:
    short = _SHORT.get(name)
    if short is not None:
        return f"{short}={_escaped(value)}"
    number, tag = _NUMBERS.get(name, (name, 0x0C))
    data = value.encode()
    return f"{number}=#{bytes([tag, len(data)]).hex()}{data.hex()}" if len(data) < 128 else f"{number}={_escaped(value)}"


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped[:1] in (" ", "#"):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(value) > 1 else escaped


class NoMatchingRuleError(Exception):
    """No rule matches a name, so its client cannot be served."""


_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_BACK_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A mapping rule. `pattern` None: the name is unchanged (DEFAULT). `case`: L, U or empty."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def applied(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._replaced, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replaced(self, match: re.Match[str]) -> str:
        groups = match.re.groups

        def value(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            number, rest = reference[2], ""
            while len(number) > 1 and int(number) > groups:
                number, rest = number[:-1], number[-1] + rest
            # A reference to a missing group is text, as in Kafka.
            return reference[0] if int(number) > groups else (match[int(number)] or "") + rest

        return _BACK_REFERENCE.sub(value, self.replacement)


class SslPrincipalMapper:
    """Maps names by `ssl.principal.mapping.rules`; the first rule that matches wins (Kafka's SslPrincipalMapper)."""

    def __init__(self, rules: str) -> None:
        """Parses the rules. Raises ValueError if one is invalid."""
        self._rules = tuple(_rules(rules.strip()))

    def name(self, distinguished: str) -> str:
        """Returns the name of the principal. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule.applied(distinguished)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of ssl.principal.mapping.rules matches {distinguished}")


def _rules(text: str) -> Sequence[_Rule]:
    rules = []
    for found in _SPLITTER.finditer(text):
        _, default, pattern, replacement, case, other = found.groups()
        if default:
            rules.append(_Rule())
        elif pattern is not None:
            try:
                rules.append(_Rule(re.compile(pattern), replacement, case))
            except re.error as error:
                raise ValueError(f"Invalid rule: {found[1]}: {error}") from None
        elif other:
            raise ValueError(f"Invalid rule: {other}")
    return rules
