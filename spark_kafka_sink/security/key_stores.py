"""Reads certificates and keys from PEM files or text, PKCS12, and Java's JKS, detected by the first bytes.

Pure, except for reading files. Each OptionError names the option, the file and what to do; never a password.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import hmac
import os
import re
import shlex
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.installation import not_installed

MAX_BYTES: Final = 16 * 1024 * 1024
"""A store with all public authorities has 0.3 MB."""

JKS_MAGIC: Final = 0xFEEDFEED
JCEKS_MAGIC: Final = 0xCECECECE


class Format(Enum):
    """Formats of stores. Each value is its name in error texts."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"
    JCEKS = "JCEKS"
    OTHER = "in another format"


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a store's bytes: an option, and the file that it names; no file if the option's text is the store."""

    option: str
    file: str = ""

    def wrong(self, text: str) -> OptionError:
        """Returns the error of an invalid store. `text` follows the file's name."""
        what = f"file {self.file!r}" if self.file else "its text"
        return OptionError(f"option {self.option}: {what} {text}", option=self.option, file=self.file)

    def read(self) -> bytes:
        """Returns the file's bytes."""
        try:
            with open(self.file, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            # Usually it exists on the driver, but the executor that reads it is on another machine.
            raise self.wrong(f"does not exist on {socket.gethostname()}. Copy it to each machine that uses it") from None
        except IsADirectoryError:
            raise self.wrong("is a folder. Set the option to a file") from None
        except PermissionError:
            raise self.wrong(f"is not readable by user {_user()!r} on {socket.gethostname()}. Change its permissions") from None
        except (OSError, ValueError) as error:
            raise self.wrong(f"cannot be read: {error}") from None
        if len(data) > MAX_BYTES:
            raise self.wrong(f"is larger than {MAX_BYTES:,} bytes. It is not a store of certificates")
        if not data:
            raise self.wrong("is empty")
        return data


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def format_of(data: bytes) -> Format:
    """Returns a store's format by its first bytes. Its name is not reliable: keytool writes PKCS12 as .jks since Java 9."""
    if b"-----BEGIN" in data:
        return Format.PEM
    magic = int.from_bytes(data[:4], "big")
    if magic in (JKS_MAGIC, JCEKS_MAGIC):
        return Format.JKS if magic == JKS_MAGIC else Format.JCEKS
    # A DER sequence that begins with version 3. It may be BER with an indefinite length (0x80).
    start = 2 + (data[1] & 0x7F if data[1:2] > b"\x80" else 0)
    return Format.PKCS12 if data[:1] == b"0" and data[start : start + 3] == b"\x02\x01\x03" else Format.OTHER


# PEM

_BLOCK: Final = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)\s*-+(.*?)-+END\s+\1\s*-+", re.DOTALL)
_HEADER: Final = re.compile(r"[^\r\n:]*:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*(?:\r?\n|$)")
_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE")


@dataclass(frozen=True, slots=True)
class PemBlock:
    """A PEM block. headers: those of keys in OpenSSL's traditional encryption. `repr` hides the data, which may be a key."""

    label: str
    headers: str
    data: bytes

    def __repr__(self) -> str:
        return f"PemBlock({self.label!r}, {counted(len(self.data), 'byte')})"

    @property
    def is_encrypted(self) -> bool:
        return self.label == "ENCRYPTED PRIVATE KEY" or "ENCRYPTED" in self.headers

    def text(self) -> bytes:
        """Returns the block as OpenSSL reads it."""
        headers = f"{self.headers}\n\n" if self.headers else ""
        body = base64.encodebytes(self.data).replace(b"\n", b"")
        lines = b"\n".join(body[at : at + 64] for at in range(0, len(body), 64))
        return f"-----BEGIN {self.label}-----\n{headers}".encode() + lines + f"\n-----END {self.label}-----\n".encode()


def pem_blocks(source: Source, data: bytes) -> list[PemBlock]:
    """Returns the blocks of a PEM text. As in Kafka, any white space separates, so the text may be on one line."""
    # Line ends in environment variables are often the two characters "\n".
    text = data.decode("latin-1").replace("\\n", "\n").replace("\\r", "")
    blocks = []
    for number, found in enumerate(_BLOCK.finditer(text), start=1):
        label = " ".join(found[1].split())
        body = found[2].strip()
        headers = []
        while header := _HEADER.match(body):
            headers.append(header[0].strip())
            body = body[header.end() :].lstrip()
        try:
            blocks.append(PemBlock(label, "\n".join(headers), base64.b64decode("".join(body.split()), validate=True)))
        except ValueError:  # binascii.Error is a subclass; non-ASCII text raises another one
            raise source.wrong(f"has a damaged block (number {number}, {label}): it is not base64") from None
    if not blocks and "-----BEGIN" in text:
        raise source.wrong("has an unterminated PEM block: a line such as -----END CERTIFICATE----- is missing")
    return blocks


# Contents of stores


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and the certificates that go with it, the owner's first. `repr` hides the key."""

    key: PemBlock
    chain: Sequence[PemBlock]


def trusted_certificates(source: Source, data: bytes, password: str | None) -> list[bytes]:
    """Returns the certificates of a trust store, as DER. There is at least one."""
    found = format_of(data)
    if found is Format.PEM:
        certificates = [block.data for block in pem_blocks(source, data) if block.label in _CERTIFICATES]
    elif found in (Format.JKS, Format.JCEKS):
        certificates = jks_certificates(source, data, password)
    elif found is Format.PKCS12:
        certificates = [block.data for block in _pkcs12(source, data, password)[1]]
    else:
        raise _unknown(source, found, "PEM, PKCS12 or JKS")
    if not certificates:
        raise source.wrong("contains no certificate. Set the option to a file with the certificate of the brokers' authority")
    return certificates


def key_pair(source: Source, data: bytes, password: str | None) -> KeyPair:
    """Returns the key and the certificates of a key store in one file or text."""
    found = format_of(data)
    if found in (Format.JKS, Format.JCEKS):
        raise source.wrong(
            f"is a key store in Java's format {found.value}, whose keys only Java can read. "
            f"Convert it: {conversion(source.file, found)}"
        )
    if found is Format.PEM:
        return KeyPair(private_key(source, data), chain(source, data))
    if found is Format.PKCS12:
        key, certificates = _pkcs12(source, data, password)
        if key is None:
            raise source.wrong("contains no private key. It is a trust store")
        if not certificates:
            raise source.wrong("contains no certificate")
        return KeyPair(key, certificates)
    raise _unknown(source, found, "PEM or PKCS12")


def private_key(source: Source, data: bytes) -> PemBlock:
    """Returns the only private key of a PEM text."""
    _check_pem(source, data)
    keys = [block for block in pem_blocks(source, data) if block.label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        has = f"contains {len(keys)} private keys" if keys else "contains no private key"
        raise source.wrong(f"{has}. It must contain one: a block that begins with -----BEGIN PRIVATE KEY-----")
    return keys[0]


def chain(source: Source, data: bytes) -> list[PemBlock]:
    """Returns the certificates of a PEM text. There is at least one."""
    _check_pem(source, data)
    certificates = [block for block in pem_blocks(source, data) if block.label in _CERTIFICATES]
    if not certificates:
        raise source.wrong("contains no certificate. It must contain one: a block that begins with -----BEGIN CERTIFICATE-----")
    return certificates


def conversion(file: str, found: Format) -> str:
    """Returns the command that converts a Java store to PKCS12."""
    target = os.path.splitext(file)[0] + ".p12"
    kind = f" -srcstoretype {found.value}" if found is Format.JCEKS else ""
    return (
        f"keytool -importkeystore -srckeystore {shlex.quote(file)}{kind} "
        f"-destkeystore {shlex.quote(target)} -deststoretype PKCS12"
    )


def _check_pem(source: Source, data: bytes) -> None:
    found = format_of(data)
    if found is not Format.PEM:
        raise _unknown(source, found, "PEM")


def _unknown(source: Source, found: Format, wanted: str) -> OptionError:
    to_do = "Set ssl.keystore.location to it instead" if found is Format.PKCS12 else "Convert it, or check that it is complete"
    return source.wrong(f"is {found.value}, must be {wanted}. {to_do}")


# PKCS12


def _pkcs12(source: Source, data: bytes, password: str | None) -> tuple[PemBlock | None, list[PemBlock]]:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise source.wrong(f"is PKCS12, and {not_installed('cryptography')}") from None
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError:
        if password is None:
            raise source.wrong(f"is PKCS12 and cannot be opened without a password. Set {_password_option(source)}") from None
        raise source.wrong(
            f"cannot be opened: the password ({_password_option(source)}) is wrong, or the file is damaged"
        ) from None
    certificates = ([store.cert] if store.cert is not None else []) + list(store.additional_certs)
    chain = [PemBlock("CERTIFICATE", "", each.certificate.public_bytes(Encoding.DER)) for each in certificates]
    if store.key is None:
        return None, chain
    return PemBlock("PRIVATE KEY", "", store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())), chain


def _password_option(source: Source) -> str:
    return "ssl.truststore.password" if source.option.startswith(("ssl.truststore", "ssl.ca")) else "ssl.keystore.password"


# JKS: sun.security.provider.JavaKeyStore. JCEKS has the same entries and also secret keys.

_SALT: Final = b"Mighty Aphrodite"
_PRIVATE_KEY, _TRUSTED, _SECRET_KEY = 1, 2, 3


def jks_certificates(source: Source, data: bytes, password: str | None) -> list[bytes]:
    """Returns the certificates that Java would trust: the trusted ones, and the first one of each key.

    As in Java, the store's integrity is checked only if there is a password. The certificates are not encrypted.
    """
    body, digest = data[:-20], data[-20:]
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be", "surrogatepass") + _SALT + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise source.wrong(f"cannot be opened: the password ({_password_option(source)}) is wrong, or the file is damaged")
    try:
        return list(_jks_entries(source, body))
    except (struct.error, IndexError):
        raise source.wrong("is a truncated JKS store. Copy it again") from None


def _jks_entries(source: Source, body: bytes) -> Iterator[bytes]:
    at = 0

    def number(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f">{code}", body, at)
        at += struct.calcsize(code)
        return int(value)

    def piece(length: int) -> bytes:
        nonlocal at
        if length > len(body) - at:
            raise IndexError
        at += length
        return body[at - length : at]

    def certificate(version: int) -> bytes:
        if version == 2:
            piece(number("H"))  # X.509
        return piece(number("I"))

    number("I")
    version, count = number("I"), number("I")
    if version not in (1, 2):
        raise source.wrong(f"is a JKS store of version {version}, but only 1 and 2 are supported. Check that it is complete")
    for _ in range(count):
        kind = number("I")
        alias = piece(number("H"))
        number("Q")  # creation time
        if kind == _TRUSTED:
            yield certificate(version)
        elif kind == _PRIVATE_KEY:
            piece(number("I"))
            certificates = [certificate(version) for _ in range(number("I"))]
            yield from certificates[:1]
        elif kind == _SECRET_KEY:
            raise source.wrong(
                f"has a secret key ({alias.decode(errors='replace')!r}) in it, which only Java can read. "
                f"Convert it: {conversion(source.file, Format.JCEKS)}"
            )
        else:
            raise source.wrong(f"has an entry of unknown kind {kind}. Check that it is complete")
    if at != len(body):
        raise source.wrong(f"has {counted(len(body) - at, 'byte')} after its last entry. Check that it is complete")
