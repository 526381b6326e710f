"""TLS listeners of an embedded broker, asked by Python's ssl and by openssl: certificates, clients' certificates, bad ends."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.certificates import CertificateAuthority, KeyAndCertificate
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError, UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client, api_versions_frame
from tests.broker.unharmed import connections
from tests.waiting import wait_until

AUTHORITY = CertificateAuthority()


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap_servers.rsplit(":", 1)[1])


def context(own: KeyAndCertificate | None = None, folder: Path | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=AUTHORITY.certificate)
    if own is not None:
        assert folder is not None
        file = folder / "own.pem"
        file.write_text(own.key + own.certificate)
        made.load_cert_chain(file)
    return made


@contextmanager
def tls_client(port: int, tls: ssl.SSLContext, name: str = "localhost") -> Iterator[Client]:
    client = Client(port)
    try:
        client.socket = tls.wrap_socket(client.socket, server_hostname=name)
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tls=AUTHORITY) as running:
        running.create_topic("t")
        yield running


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_it_is_spoken_to_by_every_name_of_this_machine(broker: EmbeddedBroker, name: str) -> None:
    with tls_client(port_of(broker), context(), name) as client:
        assert client.api_versions().error_code == 0


def test_advertised_names_are_in_the_certificate() -> None:
    config = BrokerConfig(num_network_threads=1)
    with EmbeddedBroker(tls=AUTHORITY, config=config, advertised={1: ("kafka.example", 0)}) as broker:
        port = int(broker.address(1).rsplit(":", 1)[1])
        with tls_client(port, context(), "kafka.example") as client:
            metadata: Any = client.ask(ApiKey.METADATA, 12, MetadataRequest([]))
            assert metadata.brokers[0].host == "kafka.example"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(broker: EmbeddedBroker, version: ssl.TLSVersion) -> None:
    tls = context()
    tls.minimum_version = tls.maximum_version = version
    with tls_client(port_of(broker), tls) as client:
        assert client.api_versions().error_code == 0


def test_a_plain_client_is_closed_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    # A broker of its own, because only the first few in ten seconds have a line each.
    with EmbeddedBroker(tls=AUTHORITY) as broker, caplog.at_level(logging.INFO), Client(port_of(broker)) as plain:
        plain.send(api_versions_frame())
        with suppress(ConnectionResetError):
            while plain.socket.recv(1024):  # an alert, perhaps
                pass
        wait_until(lambda: "TLS handshake with 127.0.0.1" in caplog.text)


def test_a_handshake_that_never_ends_is_closed_when_it_was_idle_for_too_long() -> None:
    config = BrokerConfig(connections_max_idle_ms=300, num_network_threads=1, max_connections=6)
    with EmbeddedBroker(tls=AUTHORITY, config=config) as broker, ExitStack() as closing:
        silent = [closing.enter_context(Client(port_of(broker))) for _ in range(5)]
        silent[0].send(b"\x16\x03\x01")  # begins as a handshake does
        # The only thread serves others meanwhile, and then the places are free again.
        with tls_client(port_of(broker), context()) as client:
            assert client.api_versions().error_code == 0
        assert all(client.is_closed_by_broker() for client in silent)
        for _ in range(3):
            with tls_client(port_of(broker), context()) as client:
                assert client.api_versions().error_code == 0


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedBroker]:
    """It serves who has a certificate only."""
    acl = "--allow-principal 'User:CN=ana,O=Acme' --operation Read --topic t"
    with EmbeddedBroker(tls=AUTHORITY, config=BrokerConfig(ssl_client_auth="required", acls=[acl])) as running:
        running.create_topic("t")
        yield running


class TestClientsCertificates:
    def may_read(self, client: Client) -> int:
        metadata: Any = client.ask(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="t")]))
        return int(metadata.topics[0].error_code)

    def test_the_name_in_it_is_the_principal(self, strict: EmbeddedBroker, tmp_path: Path) -> None:
        for own, code in ((AUTHORITY.client("ana", organization="Acme"), 0), (AUTHORITY.client("ana"), 29)):
            with tls_client(port_of(strict), context(own=own, folder=tmp_path)) as client:
                assert self.may_read(client) == ErrorCode(code)

    @pytest.mark.parametrize("which", ["none", "of another authority", "expired"])
    def test_without_a_valid_one_nobody_is_served(self, strict: EmbeddedBroker, which: str, tmp_path: Path) -> None:
        expired = AUTHORITY.client("ana", organization="Acme", valid=timedelta(minutes=-1))
        stranger = CertificateAuthority().client("ana", organization="Acme")
        own = {"none": None, "of another authority": stranger, "expired": expired}[which]
        tls = context(own=own, folder=tmp_path)
        # With TLS 1.3 the client hears of it when it reads.
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)), tls_client(port_of(strict), tls) as client:
            client.api_versions()

    def test_one_that_is_only_requested(self, tmp_path: Path) -> None:
        config = BrokerConfig(
            ssl_client_auth="requested",
            ssl_principal_mapping_rules="RULE:^CN=(.*?)$/$1/U",
            acls=["--allow-principal User:ANA --operation Read --topic t"],
        )
        with EmbeddedBroker(tls=AUTHORITY, config=config) as broker:
            broker.create_topic("t")
            for own, code in ((AUTHORITY.client("ana"), 0), (None, 29)):
                with tls_client(port_of(broker), context(own=own, folder=tmp_path)) as client:
                    assert self.may_read(client) == code

    def test_a_name_without_a_rule_is_closed(self, tmp_path: Path) -> None:
        config = BrokerConfig(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=bob$/bob/")
        with EmbeddedBroker(tls=AUTHORITY, config=config) as broker:
            with tls_client(port_of(broker), context(own=AUTHORITY.client("bob"), folder=tmp_path)) as client:
                assert client.api_versions().error_code == 0
            ana = context(own=AUTHORITY.client("ana"), folder=tmp_path)
            with pytest.raises((EOFError, ConnectionError, ssl.SSLError)), tls_client(port_of(broker), ana) as client:
                client.api_versions()
            wait_until(lambda: connections(broker) == 0)


class TestSettings:
    """The key and the certificates of a user's own, by Kafka's names."""

    def served(self, **settings: Any) -> None:
        with EmbeddedBroker(config=BrokerConfig(num_network_threads=1, **settings)) as broker:
            with tls_client(port_of(broker), context()) as client:
                assert client.api_versions().error_code == 0
            assert broker.client_settings["security.protocol"] == "SSL"

    def test_a_file(self, tmp_path: Path) -> None:
        made, file = AUTHORITY.server(["localhost"]), tmp_path / "broker.pem"
        file.write_text(made.key + made.certificate)
        self.served(ssl_keystore_location=str(file))

    def test_text_with_a_password(self) -> None:
        made = AUTHORITY.server(["localhost"])
        self.served(
            ssl_keystore_key=encrypted(made.key, b"pass word"),
            ssl_keystore_certificate_chain=made.certificate,
            ssl_key_password="pass word",
        )

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"ssl_keystore_location": "/none/broker.pem"}, "/none/broker.pem cannot be read: No such file"),
            ({"ssl_keystore_key": "x", "ssl_keystore_certificate_chain": "y"}, "does not contain a private key"),
            ({"ssl_keystore_key": "x"}, "needs ssl.keystore.location"),
            ({"ssl_client_auth": "always"}, "must be one of none, requested, required"),
            ({"ssl_enabled_protocols": ("TLSv1",)}, "must include one of TLSv1.2, TLSv1.3"),
            ({"ssl_client_auth": "required", "ssl_truststore_location": "/none/ca"}, "/none/ca cannot be read"),
            ({"ssl_client_auth": "required", "ssl_truststore_certificates": "x"}, "does not contain certificates in PEM"),
            ({"ssl_principal_mapping_rules": "x"}, "Invalid rule: x"),
        ],
    )
    def test_what_cannot_be_used(self, settings: dict[str, Any], words: str) -> None:
        made = AUTHORITY.server(["localhost"])
        own = {"ssl_keystore_key": made.key, "ssl_keystore_certificate_chain": made.certificate}
        given = settings if any("keystore" in name for name in settings) else own | settings
        with pytest.raises(OptionError, match=words):
            EmbeddedBroker(config=BrokerConfig(**given)).start()

    def test_client_certificates_without_tls(self) -> None:
        with pytest.raises(OptionError, match=r"ssl\.client\.auth=required needs TLS"):
            EmbeddedBroker(config=BrokerConfig(ssl_client_auth="required"))

    def test_a_wrong_password_is_not_asked_for_on_the_terminal(self) -> None:
        made = AUTHORITY.server(["localhost"])
        for password in (None, "wrong"):
            config = BrokerConfig(
                ssl_keystore_key=encrypted(made.key, b"right"),
                ssl_keystore_certificate_chain=made.certificate,
                ssl_key_password=password,
            )
            with pytest.raises(OptionError, match=r"another ssl\.key\.password") as raised:
                EmbeddedBroker(config=config).start()
            assert "wrong" not in str(raised.value)

    def test_a_key_is_in_no_repr(self) -> None:
        made = AUTHORITY.server(["localhost"])
        config = BrokerConfig(ssl_keystore_key=made.key, ssl_keystore_certificate_chain=made.certificate)

        assert "PRIVATE" not in repr(config)
        assert "PRIVATE" not in repr(made)

    def test_a_key_of_ones_own_and_a_made_one(self) -> None:
        with pytest.raises(OptionError, match=r"tls=True .* use only one of them"):
            EmbeddedBroker(config=BrokerConfig(ssl_keystore_location="x"), tls=True)


def encrypted(key: str, password: bytes) -> str:
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key.encode(), None)
    encryption = serialization.BestAvailableEncryption(password)
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def test_without_cryptography_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(UsageError, match=r"pip install 'spark-kafka-sink\[tls\]'"):
        EmbeddedBroker(tls=True)
