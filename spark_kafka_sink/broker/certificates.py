"""A certificate authority for tests, which signs broker and client certificates in memory. Needs the extra `tls`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.installation import not_installed

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_VALID: Final = timedelta(days=30)
_CLOCKS_DIFFER: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyAndCertificate:
    """A private key and its certificate, as PEM text. The key is not part of the repr."""

    certificate: str
    key: str = field(repr=False)


class CertificateAuthority:
    """A certificate authority for tests. Its key exists only in memory. Safe to call from any thread.

    Args:
        name: the authority's common name.

    Attributes:
        certificate: the authority's own certificate as PEM text, which the peer has to trust.

    Raises:
        UsageError: the extra `tls` is not installed.
    """

    def __init__(self, name: str = "spark-kafka-sink test authority") -> None:
        """Creates a key and a self-signed certificate. Raises UsageError if the extra `tls` is not installed."""
        try:
            from cryptography import x509
        except ImportError:
            raise UsageError(f"certificates cannot be made: {not_installed('cryptography')}") from None
        self._key = _new_key()
        self._name = _subject(name)
        self._own = self._signed(
            self._key, self._name, _VALID, [(x509.BasicConstraints(ca=True, path_length=0), True), (_usage(signs=True), True)]
        )
        self.certificate: str = _pem(self._own)

    def server(self, hosts: Iterable[str], *, valid: timedelta = _VALID) -> KeyAndCertificate:
        """Creates a private key and a certificate for a broker.

        Args:
            hosts: the host names and IP addresses that the certificate is valid for.
            valid: the time until it expires. A negative value creates an expired certificate.
        """
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        names = list(dict.fromkeys(hosts))
        alternative = x509.SubjectAlternativeName([_general_name(host) for host in names])
        # Brokers connect to each other as clients.
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._leaf(_subject(names[0]), valid, [(alternative, False), (x509.ExtendedKeyUsage(purposes), False)])

    def client(self, name: str, *, organization: str | None = None, valid: timedelta = _VALID) -> KeyAndCertificate:
        """Creates a certificate for a client.

        The client's principal is `User:CN=<name>` unless `ssl.principal.mapping.rules` change it.

        Args:
            name: the common name.
            organization: the organization, if any. The principal is then `User:CN=<name>,O=<organization>`.
            valid: the time until it expires. A negative value creates an expired certificate.

        Returns:
            The private key and the certificate.
        """
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._leaf(_subject(name, organization), valid, [(purpose, False)])

    def _leaf(self, subject: x509.Name, valid: timedelta, extensions: list[tuple[x509.ExtensionType, bool]]) -> KeyAndCertificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        key = _new_key()
        constraints = [(x509.BasicConstraints(ca=False, path_length=None), True), (_usage(signs=False), True)]
        certificate = self._signed(key, subject, valid, [*constraints, *extensions])
        pkcs8 = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return KeyAndCertificate(_pem(certificate), pkcs8.decode())

    def _signed(
        self,
        key: EllipticCurvePrivateKey,
        subject: x509.Name,
        valid: timedelta,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.now(UTC)
        ends = now + valid
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, ends) - _CLOCKS_DIFFER)
            .not_valid_after(ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    # An RSA key of the same strength takes a hundred times longer to generate.
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str, organization: str | None = None) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # The standard allows 64 characters. Clients check the host names in another field.
    common = x509.NameAttribute(NameOID.COMMON_NAME, name[:64])
    whose = [] if organization is None else [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)]
    return x509.Name([*whose, common])


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode()
