"""Error messages for TLS failures, with the option to set. Pure functions from an SSLError to the error to raise."""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import address_text

CertificateInfo: TypeAlias = Mapping[str, Any]
"""A certificate as `SSLSocket.getpeercert` describes it."""

_ALERT: Final = re.compile(r"(?:(?:SSLV3|TLSV1|TLSV13)_ALERT_|TLSV1_)(?P<name>[A-Z_]+)")

# The other end's first bytes are not a TLS record, or not one that a TLS server or client starts with.
_NOT_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    }
)
_NO_COMMON_VERSION: Final = frozenset({"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "WRONG_SSL_VERSION"})
_TOO_WEAK: Final = frozenset(
    {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "DH_KEY_TOO_SMALL", "UNSAFE_LEGACY_RENEGOTIATION_DISABLED"}
)
# Alerts about the certificate that this end presented or lacks.
_REFUSED_CERTIFICATE: Final = {
    "certificate_required": "it requires a certificate",
    "bad_certificate": "it considers the certificate invalid",
    "unsupported_certificate": "it does not support this type of certificate",
    "certificate_revoked": "it considers the certificate revoked",
    "certificate_expired": "it considers the certificate expired",
    "certificate_unknown": "it does not accept the certificate",
    "unknown_ca": "it does not trust the authority that issued the certificate",
    "access_denied": "it denies access",
    "decrypt_error": "it could not verify the signature",
}

# X509_V_ERR codes of OpenSSL's x509_vfy.h, grouped by their fix.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_SELF_SIGNED: Final = (18, 19)
_UNKNOWN_ISSUER: Final = (2, 20, 21)
_REVOKED: Final = 23
_WRONG_PURPOSE: Final = 26
_WRONG_NAME: Final = (62, 64)

_MAX_NAMES: Final = 10
_MAX_NAME: Final = 100

_TRUST_OPTIONS: Final = "ssl.truststore.location (a file) or ssl.truststore.certificates (PEM text)"
_KEY_OPTIONS: Final = "ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key"


@dataclass(frozen=True, slots=True)
class FarEnd:
    """The far end of a connection, and this end's certificate and trust, for error messages.

    host, port: the broker's name and port; "" and 0 for a client. shows_certificate: whether this end presents a certificate.
    trusted: a description of the trusted authorities.
    """

    peer: str
    host: str = ""
    port: int = 0
    shows_certificate: bool = False
    trusted: str = "the trust store"

    @property
    def is_broker(self) -> bool:
        return bool(self.host)

    @property
    def label(self) -> str:
        return f"broker {self.address}" if self.is_broker else f"client {self.peer}"

    @property
    def address(self) -> str:
        return address_text(self.host, self.port) if self.is_broker else self.peer

    def refused(self, text: str) -> AuthenticationError:
        return AuthenticationError(f"{self.label}: {text}", **{"broker" if self.is_broker else "peer": self.address})


def alert_of(error: ssl.SSLError) -> str:
    """Returns the name of the alert that the other end sent, spelled as in RFC 8446, or "" if it sent none."""
    found = _ALERT.fullmatch(error.reason or "")
    return found["name"].lower() if found else ""


def is_no_tls(error: ssl.SSLError) -> bool:
    """Returns whether the other end's first bytes were not TLS."""
    return error.reason in _NOT_TLS


def failure(error: ssl.SSLError, far: FarEnd, certificate: CertificateInfo | None) -> AuthenticationError | OSError:
    """Returns the error to raise for a failed handshake.

    Args:
        error: the error of the ssl module.
        far: the other end.
        certificate: the other end's certificate, if it is known.

    Returns:
        AuthenticationError if the same settings would fail again. OSError for a failure that may be temporary, such as damaged
        bytes or a problem of the other end.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return far.refused(_unverified(error, far, certificate or {}))
    reason = error.reason or ""
    alert = alert_of(error)
    text = _about_alert(alert, far) if alert else _about_reason(reason, far)
    return far.refused(text) if text else broken(error)


def broken(error: ssl.SSLError) -> OSError:
    """Returns the error to raise for a failure that may be temporary."""
    alert = alert_of(error)
    if alert:
        return OSError(errno.EPROTO, f"the other end ended TLS with the alert {alert}")
    reason = (error.reason or "").replace("_", " ").lower()
    return OSError(errno.EPROTO, f"TLS failed: {reason or error.strerror or error}")


def _about_reason(reason: str, far: FarEnd) -> str:
    if reason in _NOT_TLS:
        if not far.is_broker:
            return "it does not speak TLS. Set the client's security.protocol=SSL or SASL_SSL, or use a listener without TLS"
        return (
            "it does not speak TLS. Set security.protocol=PLAINTEXT or SASL_PLAINTEXT, or use the port of its TLS listener "
            "(security.protocol is SSL or SASL_SSL)"
        )
    if reason in _NO_COMMON_VERSION:
        return f"it supports no TLS version that this end supports. {_versions(far)}"
    if reason == "NO_SHARED_CIPHER":
        return "it has no cipher suite in common with this end. Check ssl.cipher.suites on both ends"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it sent no certificate, which this listener requires (ssl.client.auth=required)"
    if reason in _TOO_WEAK:
        what = reason.replace("_", " ").lower()
        return f"its certificate or parameters are too weak for this machine's OpenSSL ({what}). Renew them"
    return ""


def _about_alert(alert: str, far: FarEnd) -> str:
    if alert in _REFUSED_CERTIFICATE:
        return _refused_certificate(alert, far)
    if alert == "handshake_failure":
        text = "it found no common settings (TLS alert handshake_failure). Check ssl.cipher.suites and ssl.enabled.protocols"
        if far.is_broker and not far.shows_certificate:
            # Before TLS 1.3, OpenSSL's servers also send this alert if a required certificate is missing.
            text += f". If it requires a client certificate, set {_KEY_OPTIONS}"
        return text
    if alert in ("protocol_version", "insufficient_security"):
        return f"it does not accept this end's TLS version (TLS alert {alert}). {_versions(far)}"
    if alert == "unrecognized_name":
        return f"it does not know the name {far.host!r} (TLS alert unrecognized_name). Check the host in bootstrap.servers"
    if alert in ("no_application_protocol", "missing_extension", "unsupported_extension"):
        return f"it does not accept what this end offers (TLS alert {alert}). Check that it is a Kafka listener"
    return ""


def _refused_certificate(alert: str, far: FarEnd) -> str:
    why = f"{_REFUSED_CERTIFICATE[alert]} (TLS alert {alert})"
    if not far.is_broker:
        return f"it refused this broker's certificate: {why}. Add the broker's authority to the client's ssl.truststore.location"
    if far.shows_certificate:
        return (
            f"it refused the client's certificate: {why}. "
            f"Check the certificate in {_KEY_OPTIONS}, and whether the broker trusts the authority that issued it"
        )
    return f"it refused a client without a certificate: {why}. Set {_KEY_OPTIONS}"


def _versions(far: FarEnd) -> str:
    if far.is_broker:
        return "Check ssl.enabled.protocols and ssl.protocol; TLSv1.2 and TLSv1.3 are supported"
    return "Check the client's ssl.enabled.protocols"


def _unverified(error: ssl.SSLCertVerificationError, far: FarEnd, certificate: CertificateInfo) -> str:
    code = error.verify_code
    if not far.is_broker:
        return f"its certificate is not accepted: {error.verify_message}. Check ssl.truststore.location of this listener"
    if code == _EXPIRED:
        until = _date("; its own certificate expires on", certificate, "notAfter")
        return f"a certificate in its chain has expired{until}. Renew it on the broker"
    if code == _NOT_YET_VALID:
        since = _date("; its own certificate is valid from", certificate, "notBefore")
        return f"a certificate in its chain is not valid yet{since}. Check the clocks of this machine and of the broker"
    if code in _WRONG_NAME:
        return _wrong_name(far, certificate)
    if code in _SELF_SIGNED:
        return (
            f"its certificate{_subject(certificate)} is self-signed or issued by a self-signed authority, "
            f"which is not among {far.trusted}. Add it to {_TRUST_OPTIONS}"
        )
    if code in _UNKNOWN_ISSUER:
        return (
            f"its certificate is issued by an authority that is not trusted{_named(',', certificate.get('issuer', ()))}: "
            f"it is not among {far.trusted}. Add the authority's certificate to {_TRUST_OPTIONS}"
        )
    if code == _REVOKED:
        return f"its certificate{_subject(certificate)} is revoked. Renew it on the broker"
    if code == _WRONG_PURPOSE:
        return "its certificate is not meant for servers (extended key usage lacks serverAuth). Renew it on the broker"
    return f"its certificate is not accepted: {error.verify_message}. Check the certificate and {_TRUST_OPTIONS}"


def _wrong_name(far: FarEnd, certificate: CertificateInfo) -> str:
    names = [_shown(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    names = names or [_shown(value) for value in _attributes(certificate.get("subject", ()), "commonName")]
    has = ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
    return (
        f"its certificate is not valid for the host name {far.host!r}"
        + (f", but for {has}" if has else "")
        + ". Connect to a name in the certificate (bootstrap.servers, and advertised.listeners of the broker), or renew it. "
        "An empty ssl.endpoint.identification.algorithm accepts any name, and so any server with a trusted certificate"
    )


def _date(text: str, certificate: CertificateInfo, key: str) -> str:
    return f"{text} {certificate[key]}" if key in certificate else ""


def _subject(certificate: CertificateInfo) -> str:
    return _named(" for", certificate.get("subject", ()))


def _named(text: str, name: Any) -> str:
    found = [*_attributes(name, "commonName"), *_attributes(name, "organizationName")]
    return f"{text} {_shown(found[0])}" if found else ""


def _attributes(name: Any, key: str) -> list[str]:
    return [value for part in name for kind, value in part if kind == key]


def _shown(value: str) -> str:
    """Quotes a name from an untrusted certificate, so that it cannot break lines of a log."""
    return ascii(value[:_MAX_NAME])
