"""Certificates for tests, made while they run: an authority, what it signs, and the files that brokers and clients read."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KEYTOOL_TIMEOUT_S = 30.0
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate, which an Authority has signed."""

    private_key: ec.EllipticCurvePrivateKey
    x509: x509.Certificate

    @property
    def key(self) -> str:
        """The private key as PEM text (PKCS8, not encrypted)."""
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def encrypted_key(self, password: str) -> str:
        encryption = BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def certificate(self) -> str:
        """The certificate as PEM text."""
        return self.x509.public_bytes(Encoding.PEM).decode()

    @property
    def key_store(self) -> str:
        """Both, as the PEM file that Kafka's ssl.keystore.location names."""
        return self.key + self.certificate

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"client", self.private_key, self.x509, None, encryption)


class Authority:
    """A certificate authority. Keys are of elliptic curves: RSA keys take a tenth of a second each to make."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        now = datetime.now(UTC)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self.x509 = (
            self._builder(self._name, self._key, now - _DAY, now + 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> str:
        """The authority's own certificate as PEM text: what a trust store holds."""
        return self.x509.public_bytes(Encoding.PEM).decode()

    def issue(self, common_name: str, *hosts: str, expired: bool = False) -> Identity:
        """Signs a certificate for a new key.

        Args:
            common_name: the subject's name; Kafka takes a client's principal from it.
            hosts: DNS names and IP addresses that the certificate is for.
            expired: whether it was valid until yesterday.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        not_before, not_after = (now - 10 * _DAY, now - _DAY) if expired else (now - _DAY, now + 30 * _DAY)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._builder(_subject(common_name), key, not_before, not_after).add_extension(usage, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
        return Identity(key, builder.sign(self._key, hashes.SHA256()))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, not_before: datetime, not_after: datetime
    ) -> x509.CertificateBuilder:
        public = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        )


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def write_trust_store(certificate: Path, store: Path, kind: str, password: str) -> Path:
    """Writes a trust store with Java's keytool and returns its path.

    Args:
        certificate: PEM file of the authority.
        store: file to write.
        kind: JKS or PKCS12.
        password: of the store.
    """
    said = _keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate)),
        *("-keystore", str(store), "-storetype", kind, "-storepass", password),
    )
    assert store.is_file(), said
    return store


def _keytool(*arguments: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("keytool", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise FileNotFoundError("no keytool beside java: it is part of every Java that tests run")
    done = subprocess.run(
        [found, "-J-XX:TieredStopAtLevel=1", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=KEYTOOL_TIMEOUT_S,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"keytool {arguments[0]} ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout
