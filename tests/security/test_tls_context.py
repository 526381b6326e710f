"""The options of TLS as contexts: what they trust, show and speak, in handshakes with the ssl module's server."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.security_config import SecurityConfig, security_config
from spark_kafka_sink.security.tls_context import MAX_CONTEXTS, ReloadingTls, client_tls
from tests.network.tls_ends import TlsEnds
from tests.security.certificates import Certificates, Identity, server_context

PASSWORD = "open\\ \"sesame'"
Options = Mapping[str, str]


def config(options: Options) -> SecurityConfig:
    return security_config({"security.protocol": "SSL", **options})


def refusal(options: Options, option: str) -> str:
    with pytest.raises(OptionError) as refused:
        client_tls(config(options))
    assert refused.value.facts["option"] == option
    assert refused.value.message.startswith(f"option {option}: ")
    assert PASSWORD not in refused.value.message
    return refused.value.message


@dataclass(frozen=True)
class Met:
    """What a server saw of a client."""

    version: str | None
    cipher: str
    names: list[str]


class Broker:
    """A server of the ssl module to which a client with some options connects."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates = certificates
        self.folder = folder
        self.trust = {"ssl.truststore.certificates": certificates.authority.chain_pem}
        self.context = server_context(certificates.server, folder)

    def requiring_clients(self) -> Broker:
        self.context = server_context(self.certificates.server, self.folder, clients=self.certificates.authority)
        return self

    def meets(self, options: Options, *, trust: bool = True) -> Met:
        """Connects a client that trusts the server's authority, if it is to."""
        return self.meets_context(client_tls(config({**(self.trust if trust else {}), **options})).context)

    def meets_context(self, context: ssl.SSLContext) -> Met:
        """Shakes hands, and reads a byte at the client. Raises what the channel raises."""
        ends = TlsEnds(context, self.context)
        try:
            ends.shake_hands()
            assert ends.far is not None
            if ends.far_error is None:
                ends.far.send(b"x")
            ends.read(1)
            shown, cipher = ends.far.getpeercert(), ends.far.cipher()
            subject: Any = shown["subject"] if shown else ()
            return Met(ends.far.version(), cipher[0] if cipher else "", [value for part in subject for _, value in part])
        finally:
            ends.close()


@pytest.fixture
def broker(certificates: Certificates, tmp_path: Path) -> Broker:
    return Broker(certificates, tmp_path)


# Trust


def test_by_default_certificates_and_host_names_are_verified_and_the_system_is_trusted() -> None:
    tls = client_tls(config({}))
    assert tls.context.verify_mode is ssl.CERT_REQUIRED
    assert tls.context.check_hostname
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.trusted == "the system's authorities"
    assert not tls.shows_certificate


def test_a_broker_of_an_authority_that_the_system_does_not_know_is_refused(broker: Broker) -> None:
    with pytest.raises(AuthenticationError, match="is not trusted"):
        broker.meets({}, trust=False)


@pytest.mark.parametrize("option", ["ssl.truststore.location", "ssl.ca.location"])
def test_authorities_are_read_from_a_pem_file(broker: Broker, option: str) -> None:
    path = broker.folder / "ca.pem"
    path.write_text(broker.certificates.other_authority.chain_pem + broker.certificates.authority.chain_pem)
    broker.meets({option: str(path)}, trust=False)


def test_text_that_is_no_unicode_is_an_option_error_like_other_wrong_text(certificates: Certificates) -> None:
    # A UnicodeEncodeError would have the whole text in its repr.
    refusal({"ssl.truststore.certificates": "\ud800"}, "ssl.truststore.certificates")
    pair = certificates.server
    refusal({"ssl.keystore.key": "\ud800", "ssl.keystore.certificate.chain": pair.chain_pem}, "ssl.keystore.key")
    refusal({"ssl.keystore.key": pair.key_pem, "ssl.keystore.certificate.chain": "\ud800"}, "ssl.keystore.certificate.chain")


@pytest.mark.parametrize("option", ["ssl.truststore.location", "ssl.ca.location"])
def test_a_reference_that_yields_no_file_never_means_the_systems_authorities(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_AUTHORITIES", "")
    assert "its reference resolves to an empty value" in refusal({option: "${env:TEST_AUTHORITIES}"}, option)


def test_authorities_are_read_from_a_pkcs12_file(broker: Broker) -> None:
    path = broker.folder / "trust.jks"  # as keytool names it
    path.write_bytes(broker.certificates.authority.pkcs12("changeit"))
    broker.meets({"ssl.truststore.location": str(path), "ssl.truststore.password": "changeit"}, trust=False)


def test_a_named_certificate_is_trusted_though_its_authority_is_not(broker: Broker) -> None:
    broker.meets({"ssl.truststore.certificates": broker.certificates.server.chain_pem}, trust=False)


def test_an_empty_identification_algorithm_accepts_any_name_and_no_other_authority(broker: Broker) -> None:
    options = {"ssl.endpoint.identification.algorithm": ""}
    broker.context = server_context(broker.certificates.elsewhere, broker.folder)
    broker.meets(options)
    broker.context = server_context(broker.certificates.of_others, broker.folder)
    with pytest.raises(AuthenticationError, match="is not trusted"):
        broker.meets(options)


def test_a_damaged_certificate_is_named_by_its_number(certificates: Certificates) -> None:
    text = certificates.authority.chain_pem + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    message = refusal({"ssl.truststore.certificates": text}, "ssl.truststore.certificates")
    assert "its text has a damaged certificate (number 2 of 2)" in message


# The client's own certificate


def key_options(identity: Identity, folder: Path, way: str) -> Options:
    """Returns the options of one way to give the client's key."""
    key, chain, store = folder / "key.pem", folder / "chain.pem", folder / "store"
    if way == "texts":
        return {"ssl.keystore.key": identity.key_pem, "ssl.keystore.certificate.chain": identity.chain_pem}
    if way == "encrypted texts":
        encrypted = identity.encrypted_key_pem(PASSWORD)
        return {
            "ssl.keystore.key": encrypted,
            "ssl.keystore.certificate.chain": identity.chain_pem,
            "ssl.key.password": PASSWORD,
        }
    if way == "librdkafka's files":
        key.write_text(identity.encrypted_key_pem(PASSWORD))
        chain.write_text(identity.chain_pem)
        return {"ssl.key.location": str(key), "ssl.certificate.location": str(chain), "ssl.key.password": PASSWORD}
    if way == "a PEM store":
        store.write_text(identity.key_pem + identity.chain_pem)
        return {"ssl.keystore.location": str(store), "ssl.keystore.type": "PEM"}
    store.write_bytes(identity.pkcs12(PASSWORD))
    return {"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}


WAYS = ["texts", "encrypted texts", "librdkafka's files", "a PEM store", "a PKCS12 store"]


@pytest.mark.parametrize("way", WAYS)
def test_the_clients_certificate_is_shown_however_it_is_given(broker: Broker, certificates: Certificates, way: str) -> None:
    identity = certificates.authority.intermediate("Clients").issue("client", client=True)
    assert broker.requiring_clients().meets(key_options(identity, broker.folder, way)).names == ["client"]


def open_files() -> list[str]:
    """Returns what the descriptors of this process stand for, where the system tells."""
    names = []
    for descriptor in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            pass  # closed by another thread, or by the listing itself
    return names


def test_a_key_given_as_text_leaves_nothing_on_disk(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    client_tls(config(key_options(certificates.client, tmp_path, "texts")))
    assert list(tmp_path.iterdir()) == []
    assert not [name for name in open_files() if "memfd:certificate" in name]


def test_where_there_is_no_memory_file_a_private_one_is_removed_at_once(
    broker: Broker, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    modes = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, path: str, password: str) -> None:
        modes.extend([os.stat(path).st_mode & 0o777, os.stat(os.path.dirname(path)).st_mode & 0o777])
        load(self, path, password=password)

    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.delattr("os.memfd_create", raising=False)
    broker.requiring_clients()
    options = config({**broker.trust, **key_options(certificates.client, tmp_path, "texts")})
    with monkeypatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_cert_chain", watched)
        tls = client_tls(options)
    broker.meets_context(tls.context)
    assert modes == [0o600, 0o700]
    assert list(folder.iterdir()) == []


def test_what_is_wrong_with_the_clients_key_is_said(certificates: Certificates, tmp_path: Path) -> None:
    client, other = certificates.client, certificates.other_client
    chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    good = {chain: client.chain_pem, key: client.key_pem}
    encrypted = {**good, key: client.encrypted_key_pem(PASSWORD)}
    assert "has a certificate that does not match the private key" in refusal({**good, chain: other.chain_pem}, chain)
    assert "has an encrypted private key. Set ssl.key.password" in refusal(encrypted, key)
    assert "cannot be decrypted. Check ssl.key.password" in refusal({**encrypted, "ssl.key.password": "wrong"}, key)
    assert "longer than the 1,024 bytes" in refusal({**encrypted, "ssl.key.password": "x" * 2_000}, key)
    damaged = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert refusal({**good, key: damaged}, key).endswith("has a private key or a certificate that is damaged")
    store = tmp_path / "store.p12"
    store.write_bytes(client.pkcs12("changeit"))
    files = {"ssl.key.location": str(store), "ssl.certificate.location": str(store)}
    assert "is PKCS12, must be PEM. Set ssl.keystore.location to it" in refusal(files, "ssl.key.location")


# Versions and cipher suites


@pytest.mark.parametrize(
    ("options", "spoken"),
    [
        ({}, "TLSv1.3"),
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.protocol": "TLS", "ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}, "TLSv1.3"),
        ({"ssl.enabled.protocols": " TLSv1.2 "}, "TLSv1.2"),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1.2"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,ECDHE-ECDSA-AES128-GCM-SHA256"}, "TLSv1.3"),
    ],
)
def test_the_versions_that_are_allowed_are_spoken(broker: Broker, options: Options, spoken: str) -> None:
    assert broker.meets(options).version == spoken


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, ssl.TLSVersion.TLSv1_2),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, ssl.TLSVersion.TLSv1_2),
    ],
)
def test_others_are_not(broker: Broker, options: Options, limit: ssl.TLSVersion) -> None:
    broker.context.maximum_version = limit
    with pytest.raises(AuthenticationError, match="TLS alert protocol_version"):
        broker.meets(options)


def test_the_suites_of_tls_1_2_are_those_that_are_named(broker: Broker) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    assert broker.meets({"ssl.cipher.suites": suites}).cipher == "ECDHE-ECDSA-CHACHA20-POLY1305"


def test_a_choice_among_the_suites_of_tls_1_3_is_said_to_be_impossible(caplog: pytest.LogCaptureFixture) -> None:
    client_tls(config({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}))
    assert "cannot choose among the suites of TLS 1.3" in caplog.text
    caplog.clear()
    client_tls(config({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"}))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("ssl.cipher.suites", "TLS_RSA_WITH_NOTHING", "OpenSSL has no cipher suite 'TLS_RSA_WITH_NOTHING'"),
        ("ssl.cipher.suites", "aNULL", "OpenSSL has no cipher suite 'aNULL'"),
        ("ssl.cipher.suites", "TLS_RSA_WITH_NULL_SHA256", "OpenSSL has no cipher suite 'TLS_RSA_WITH_NULL_SHA256'"),
    ],
)
def test_suites_that_are_none(option: str, value: str, says: str) -> None:
    assert says in refusal({option: value}, option)


def test_versions_that_exclude_each_other() -> None:
    refusal({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "ssl.protocol")
    refusal({"ssl.protocol": "TLSv1.2", "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "ssl.cipher.suites")


# Files that change


def test_files_are_read_again_when_they_change(
    broker: Broker, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_kafka_sink")
    path = broker.folder / "ca.pem"
    path.write_text(certificates.other_authority.chain_pem)
    reloading = ReloadingTls(config({"ssl.truststore.location": str(path)}))
    first = reloading.current()
    assert reloading.current() is first
    with pytest.raises(AuthenticationError):
        broker.meets_context(first.context)
    path.write_text(certificates.authority.chain_pem + "\n")
    assert reloading.current() is not first
    broker.meets_context(reloading.current().context)
    assert [record.getMessage() for record in caplog.records] == ["reloaded the TLS certificates, because they have changed"]


def test_a_file_that_is_replaced_by_one_of_the_same_age_and_size_is_read_again(
    certificates: Certificates, tmp_path: Path
) -> None:
    path, other = tmp_path / "ca.pem", tmp_path / "new.pem"
    path.write_text(certificates.authority.chain_pem)
    other.write_text(certificates.authority.chain_pem)
    os.utime(other, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns))
    reloading = ReloadingTls(config({"ssl.truststore.location": str(path)}))
    first = reloading.current()
    other.rename(path)
    assert reloading.current() is not first


def test_a_file_that_has_gone_bad_leaves_the_last_good_one_and_one_line_in_the_log(
    broker: Broker, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    path = broker.folder / "ca.pem"
    good = certificates.authority.chain_pem
    path.write_text(good)
    reloading = ReloadingTls(config({"ssl.truststore.location": str(path)}))
    first = reloading.current()
    for change in (lambda: path.write_text(good[:200]), lambda: path.write_text(""), path.unlink):
        change()
        caplog.clear()
        assert reloading.current() is first
        assert reloading.current() is first
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "keeping the TLS certificates that were loaded before: option ssl.truststore.location" in caplog.text
    path.write_text(good + good)
    assert reloading.current() is not first
    broker.meets_context(reloading.current().context)


def test_a_key_and_a_certificate_that_are_replaced_one_after_the_other(broker: Broker, certificates: Certificates) -> None:
    options = {**broker.trust, **key_options(certificates.client, broker.folder, "librdkafka's files")}
    reloading = ReloadingTls(config(options))
    first = reloading.current()
    fresh = certificates.authority.issue("fresh", client=True)
    Path(options["ssl.key.location"]).write_text(fresh.encrypted_key_pem(PASSWORD))
    assert reloading.current() is first
    Path(options["ssl.certificate.location"]).write_text(fresh.chain_pem)
    assert broker.requiring_clients().meets_context(reloading.current().context).names == ["fresh"]


def test_configurations_that_are_equal_share_a_context_and_the_process_keeps_few(
    certificates: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(certificates.authority.chain_pem)
    options = {"ssl.truststore.location": str(path)}
    first = ReloadingTls(config(options)).current()
    assert ReloadingTls(config(options)).current() is first
    assert ReloadingTls(config({**options, "ssl.protocol": "TLSv1.2"})).current() is not first
    for number in range(MAX_CONTEXTS):
        path.write_text(certificates.authority.chain_pem + "\n" * number)
        ReloadingTls(config(options))
    path.write_text(certificates.authority.chain_pem)
    assert ReloadingTls(config(options)).current() is not first
