"""Stores of certificates and keys: PEM as people paste it, PKCS12, and JKS as Java's keytool writes it."""

from __future__ import annotations

import hashlib
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.security.key_stores import Format, Source, format_of, key_pair, pem_blocks, trusted_certificates
from tests.security.certificates import Certificates
from tests.tiers import whole_but

PASSWORD = "changeit"
TRUST = Source("ssl.truststore.location", "/etc/trust.store")
KEYS = Source("ssl.keystore.location", "/etc/my keys.jks")


def refusal(source: Source, data: bytes, password: str | None = None) -> str:
    with pytest.raises(OptionError) as refused:
        if source is KEYS:
            key_pair(source, data, password)
        else:
            trusted_certificates(source, data, password)
    assert refused.value.facts == {"option": source.option, "file": source.file}
    assert refused.value.message.startswith(f"option {source.option}: file {source.file!r} ")
    assert PASSWORD not in refused.value.message
    return refused.value.message


# PEM


@pytest.mark.parametrize(
    "paste",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", " "),
        lambda text: text.replace("\n", "\\n"),
        lambda text: "\n".join("    " + line for line in text.splitlines()),
        lambda text: "Bag Attributes\n    friendlyName: x\nsubject=CN = y\n" + text + "a note\n",
    ],
    ids=["as it is", "CRLF", "on one line", "with backslash n", "indented", "with notes"],
)
def test_pem_is_read_however_it_is_pasted(certificates: Certificates, paste) -> None:  # type: ignore[no-untyped-def]
    two = [certificates.authority, certificates.other_authority]
    text = paste("".join(each.chain_pem for each in two))
    assert trusted_certificates(TRUST, text.encode(), None) == [each.der for each in two]


def test_a_key_store_as_pem_has_the_key_and_its_chain(certificates: Certificates) -> None:
    identity = certificates.of_intermediate
    pair = key_pair(KEYS, (identity.key_pem + identity.chain_pem).encode(), None)
    assert [block.text().decode() for block in pair.chain] == identity.chain_pem.replace("-\n-", "-\n\f-").split("\f")
    assert pair.key.text().decode() == identity.key_pem
    assert not pair.key.is_encrypted


def test_keys_that_openssl_encrypted_in_its_old_way_keep_their_headers() -> None:
    text = (
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0123456789ABCDEF0123456789ABCDEF\n\n"
        "AAECAwQF\n-----END RSA PRIVATE KEY-----\n"
    )
    (block,) = pem_blocks(KEYS, text.encode())
    assert block.is_encrypted
    assert block.text().decode() == text


def test_the_text_of_a_key_is_not_shown(certificates: Certificates) -> None:
    pair = key_pair(KEYS, (certificates.client.key_pem + certificates.client.chain_pem).encode(), None)
    assert certificates.client.key_pem.splitlines()[1] not in repr(pair)
    assert repr(pair.key.data) not in repr(pair)


def test_what_is_wrong_with_pem_is_said(certificates: Certificates) -> None:
    client, pem = certificates.client, certificates.authority.chain_pem
    assert "contains no certificate" in refusal(TRUST, client.key_pem.encode())
    assert "has a damaged block (number 1, CERTIFICATE): it is not base64" in refusal(TRUST, pem.replace("M", "?", 1).encode())
    assert "has an unterminated PEM block" in refusal(TRUST, pem[:-30].encode())
    assert "contains no private key" in refusal(KEYS, client.chain_pem.encode())
    assert "contains 2 private keys. It must contain one" in refusal(KEYS, (client.key_pem * 2 + client.chain_pem).encode())
    assert "contains no certificate" in refusal(KEYS, client.key_pem.encode())


# What a file is


def test_any_other_format_is_refused(certificates: Certificates) -> None:
    message = refusal(TRUST, certificates.authority.der)
    assert message.endswith("is in another format, must be PEM, PKCS12 or JKS. Convert it, or check that it is complete")
    for garbage in (b"\0", b"PK\x03\x04", b"\x30", b"\x30\x84", b"\x30\x82\x01\x00\x30", b"\x30\x82\x01\x00\x99"):
        assert "is in another format, must be PEM or PKCS12" in refusal(KEYS, garbage)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def reading(file: str) -> str:
        with pytest.raises(OptionError) as refused:
            Source("ssl.ca.location", file).read()
        return refused.value.message

    (tmp_path / "empty").touch()
    with open(tmp_path / "large", "wb") as large:
        large.truncate(17 * 1024 * 1024)
    assert "does not exist on " in reading(str(tmp_path / "none"))
    assert reading(str(tmp_path)).endswith("is a folder. Set the option to a file")
    assert reading(str(tmp_path / "empty")).endswith("is empty")
    assert "It is not a store of certificates" in reading(str(tmp_path / "large"))
    assert "cannot be read: embedded null byte" in reading("a\0b")


# PKCS12


def test_a_pkcs12_key_store_has_the_key_and_its_chain(certificates: Certificates) -> None:
    identity = certificates.of_intermediate
    pair = key_pair(KEYS, identity.pkcs12(PASSWORD), PASSWORD)
    assert [block.data for block in pair.chain] == [identity.der, identity.issuers[0].public_bytes(Encoding.DER)]
    assert pair.key.text().decode() == identity.key_pem


def test_pkcs12_with_a_wrong_password_or_none(certificates: Certificates) -> None:
    store = certificates.client.pkcs12(PASSWORD)
    assert "the password (ssl.keystore.password) is wrong, or the file is damaged" in refusal(KEYS, store, "wrong")
    assert "cannot be opened without a password. Set ssl.keystore.password" in refusal(KEYS, store)
    assert "Set ssl.truststore.password" in refusal(TRUST, store)
    assert "is wrong, or the file is damaged" in refusal(KEYS, store[:-40], PASSWORD)


def test_pkcs12_without_cryptography_names_the_extra(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    store = certificates.client.pkcs12(PASSWORD)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    assert refusal(KEYS, store, PASSWORD).endswith("pip install 'spark-kafka-sink[tls]'")


# JKS


def jks(*entries: bytes, version: int = 2, magic: int = 0xFEEDFEED) -> bytes:
    """A store as sun.security.provider.JavaKeyStore writes it."""
    body = struct.pack(">III", magic, version, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def jks_certificate(der: bytes, *, version: int = 2) -> bytes:
    return (struct.pack(">H", 5) + b"X.509" if version == 2 else b"") + struct.pack(">I", len(der)) + der


def trusted(der: bytes, *, version: int = 2) -> bytes:
    return struct.pack(">IH", 2, 2) + b"ca" + struct.pack(">Q", 1) + jks_certificate(der, version=version)


def private(*chain: bytes) -> bytes:
    key = struct.pack(">I", 3) + b"key" + struct.pack(">I", len(chain))
    return struct.pack(">IH", 1, 2) + b"me" + struct.pack(">Q", 1) + key + b"".join(map(jks_certificate, chain))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("password", [None, PASSWORD])
def test_a_jks_trust_store_has_its_certificates(certificates: Certificates, version: int, password: str | None) -> None:
    ders = [certificates.authority.der, certificates.other_authority.der]
    store = jks(*(trusted(der, version=version) for der in ders), version=version)
    assert trusted_certificates(TRUST, store, password) == ders


def test_of_a_jks_key_the_first_certificate_is_trusted_as_in_java() -> None:
    assert trusted_certificates(TRUST, jks(private(b"leaf", b"issuer"), trusted(b"ca")), None) == [b"leaf", b"ca"]


def test_what_is_wrong_with_jks_is_said() -> None:
    store = jks(trusted(b"certificate"))
    assert "the password (ssl.truststore.password) is wrong, or the file is damaged" in refusal(TRUST, store, "wrong")
    assert "the password (ssl.truststore.password) is wrong, or the file is damaged" in refusal(TRUST, store, "\ud800")
    assert "contains no certificate" in refusal(TRUST, jks())
    assert "version 3, but only 1 and 2 are supported" in refusal(TRUST, jks(version=3))
    assert "an entry of unknown kind 9" in refusal(TRUST, jks(struct.pack(">IHQ", 9, 0, 0)))
    assert "has 1 byte after its last entry" in refusal(TRUST, jks(trusted(b"x"))[:-20] + b"!" + bytes(20))
    secret = jks(struct.pack(">IH", 3, 4) + b"pass" + struct.pack(">Q", 1), magic=0xCECECECE)
    assert "has a secret key ('pass') in it" in refusal(TRUST, secret)
    assert "-srcstoretype JCEKS" in refusal(TRUST, secret)


def test_a_jks_store_cut_at_any_byte_is_refused() -> None:
    store = jks(trusted(b"certificate"), private(b"leaf", b"issuer"))
    for size in range(4, len(store)):
        cut = store[:size]
        with pytest.raises(OptionError):
            trusted_certificates(TRUST, cut, PASSWORD)
        with pytest.raises(OptionError):
            trusted_certificates(TRUST, cut, None)


def test_lengths_out_of_range_in_jks_take_no_memory() -> None:
    head = struct.pack(">III", 0xFEEDFEED, 2, 2**32 - 1)
    assert "is a truncated JKS store" in refusal(TRUST, head + struct.pack(">IHQHI", 2, 0, 0, 0, 2**32 - 1) + bytes(20))
    assert "is a truncated JKS store" in refusal(TRUST, head + struct.pack(">IHQII", 1, 0, 0, 0, 2**32 - 1) + bytes(20))


@pytest.mark.parametrize("magic", [0xFEEDFEED, 0xCECECECE], ids=["JKS", "JCEKS"])
def test_a_jks_key_store_is_refused_with_the_line_that_converts_it(magic: int) -> None:
    message = refusal(KEYS, jks(private(b"leaf"), magic=magic), PASSWORD)
    kind = " -srcstoretype JCEKS" if magic == 0xCECECECE else ""
    assert message.endswith(
        f"keytool -importkeystore -srckeystore '/etc/my keys.jks'{kind} -destkeystore '/etc/my keys.p12' -deststoretype PKCS12"
    )


# Anything


@pytest.mark.parametrize("kind", ["PEM", "encrypted PEM", "PKCS12", "JKS", "DER"])
def test_stores_that_are_damaged_anyhow_are_read_or_refused(certificates: Certificates, kind: str) -> None:
    client, rng = certificates.client, random.Random(kind)
    store = {
        "PEM": (client.key_pem + client.chain_pem).encode(),
        "encrypted PEM": (client.encrypted_key_pem(PASSWORD) + client.chain_pem).encode(),
        "PKCS12": client.pkcs12(PASSWORD),
        "JKS": jks(trusted(client.der), private(client.der)),
        "DER": client.der,
    }[kind]
    refused = 0
    for _ in range(150):
        damaged = bytearray(store)
        for _ in range(rng.randrange(4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        for read in (key_pair, trusted_certificates):
            try:
                read(TRUST, bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])]), PASSWORD)
            except OptionError:
                refused += 1
    assert 100 < refused <= 300


# What keytool writes


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)


@pytest.mark.java
@pytest.mark.parametrize(
    "kind", whole_but(["JKS", "JCEKS", "PKCS12"], ["JKS"], "two starts of Java; above there are stores of each kind")
)
def test_trust_stores_of_keytool_have_their_certificates(certificates: Certificates, tmp_path: Path, kind: str) -> None:
    store = ["-keystore", str(tmp_path / "trust"), "-storetype", kind, "-storepass", PASSWORD]
    for name, identity in (("ca", certificates.authority), ("other", certificates.other_authority)):
        (tmp_path / f"{name}.pem").write_text(identity.chain_pem)
        keytool("-importcert", "-noprompt", "-alias", name, "-file", str(tmp_path / f"{name}.pem"), *store)
    data = (tmp_path / "trust").read_bytes()
    assert format_of(data) is Format[kind]
    ders = {certificates.authority.der, certificates.other_authority.der}
    assert set(trusted_certificates(TRUST, data, PASSWORD)) == ders
    assert "is wrong, or the file is damaged" in refusal(TRUST, data, "wrong!")


@pytest.mark.java
def test_the_line_that_converts_a_key_store_works(tmp_path: Path) -> None:
    store = ["-keystore", str(tmp_path / "keys.jks"), "-storetype", "JKS", "-storepass", PASSWORD, "-keypass", PASSWORD]
    keytool("-genkeypair", "-alias", "me", "-keyalg", "EC", "-dname", "CN=me", *store)
    source = Source("ssl.keystore.location", str(tmp_path / "keys.jks"))
    with pytest.raises(OptionError) as refused:
        key_pair(source, source.read(), PASSWORD)
    line = refused.value.message.partition("Convert it: ")[2]
    assert line.startswith("keytool ")
    keytool(*line.split()[1:], "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    pair = key_pair(KEYS, (tmp_path / "keys.p12").read_bytes(), PASSWORD)
    assert len(pair.chain) == 1
    # The name says nothing.
    (tmp_path / "keys.p12").rename(tmp_path / "renamed.jks")
    assert key_pair(KEYS, (tmp_path / "renamed.jks").read_bytes(), PASSWORD).chain == pair.chain
