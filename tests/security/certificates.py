"""Certificate authorities and certificates of every kind, good and bad, made when tests run."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass(frozen=True)
class Identity:
    """A private key with its certificate. issuers: those above it that are sent along."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, *self.issuers))

    @property
    def key_pem(self) -> str:
        return self._key_pem(NoEncryption())

    def encrypted_key_pem(self, password: str) -> str:
        return self._key_pem(BestAvailableEncryption(password.encode()))

    def _key_pem(self, encryption: KeySerializationEncryption) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, self.issuers or None, encryption)

    def write(self, folder: Path, name: str = "identity.pem") -> str:
        """Writes key and certificates to one file. Returns its path."""
        path = folder / name
        path.write_text(self.key_pem + self.chain_pem)
        return str(path)


class Authority(Identity):
    """An authority that issues certificates."""

    @classmethod
    def root(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _signed(named(name), key.public_key(), named(name), key, is_authority=True))

    def intermediate(self, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(named(name), key.public_key(), self.certificate.subject, self.key, is_authority=True)
        return Authority(key, certificate, (certificate,))

    def issue(
        self, name: str, alternatives: Sequence[str] = (), *, begins_in: int = -1, ends_in: int = 1, client: bool = False
    ) -> Identity:
        """Issues a certificate. begins_in, ends_in: in days from now. alternatives: names and addresses of the host."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(
            named(name),
            key.public_key(),
            self.certificate.subject,
            self.key,
            alternatives=alternatives,
            days=(begins_in, ends_in),
            usage=ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH,
        )
        return Identity(key, certificate, self.issuers)


def _signed(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    alternatives: Sequence[str] = (),
    days: tuple[int, int] = (-1, 10),
    usage: x509.ObjectIdentifier | None = None,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if alternatives:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(each) for each in alternatives]), critical=False
        )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return builder.sign(key, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


LOCAL = ("localhost", "127.0.0.1")


class Certificates:
    """What the tests of a session share. Each is made when it is first asked for."""

    @cached_property
    def authority(self) -> Authority:
        return Authority.root("Test Authority")

    @cached_property
    def other_authority(self) -> Authority:
        return Authority.root("Other Authority")

    @cached_property
    def server(self) -> Identity:
        return self.authority.issue("broker", LOCAL)

    @cached_property
    def client(self) -> Identity:
        return self.authority.issue("client", client=True)

    @cached_property
    def other_client(self) -> Identity:
        return self.other_authority.issue("client of others", client=True)

    @cached_property
    def expired(self) -> Identity:
        return self.authority.issue("expired", LOCAL, begins_in=-3, ends_in=-1)

    @cached_property
    def not_yet_valid(self) -> Identity:
        return self.authority.issue("early", LOCAL, begins_in=1, ends_in=3)

    @cached_property
    def elsewhere(self) -> Identity:
        return self.authority.issue("elsewhere", ("kafka-1.example", "10.0.0.1"))

    @cached_property
    def of_others(self) -> Identity:
        return self.other_authority.issue("broker", LOCAL)

    @cached_property
    def of_intermediate(self) -> Identity:
        return self.authority.intermediate("Test Intermediate").issue("broker", LOCAL)


def server_context(identity: Identity, folder: Path, *, clients: Authority | None = None) -> ssl.SSLContext:
    """Returns a server's context of the ssl module. clients: the authority of the certificates that clients must show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.write(folder, "server.pem"))
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.chain_pem)
    return context
