"""The blocks of docs/security.md, each against real Kafka set up as the cluster that it is for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.security_blocks import BLOCKS
from tests.kafka_security.logins import KEY_PASSWORD
from tests.kafka_security.oidc_server import LONG
from tests.kafka_security.secure_kafka import EVENT_HUBS, PASSWORD, USER, SecureKafka
from tests.kafka_security.writing import numbers, write
from tests.network.small_proxy import SmallProxy
from tests.security.kdc import REALM

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.whole("the same mechanisms as in test_logins.py")]

IN_CLOUDS = {"Amazon MSK with IAM", "Azure Event Hubs with Entra ID", "Google managed Kafka"}
"""Tokens of these come from a cloud."""


class Place:
    """What the blocks are changed to for this machine: addresses, files, environment variables."""

    def __init__(self, kafka: SecureKafka, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = kafka
        self._folder = folder
        self._setenv = monkeypatch.setenv
        # Blocks without a trust store are for clusters with a public authority: here the system's.
        self._setenv("SSL_CERT_FILE", str(kafka.ca))

    def secrets(self, **variables: str) -> None:
        for name, value in variables.items():
            self._setenv(name, value)

    def file(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text)
        return str(path)

    def settings(self, title: str, listener: str, secrets: Mapping[str, str] | None = None, /, **others: str) -> dict[str, str]:
        """Returns a block's settings. others: replace values; `__` in a name stands for a dot."""
        block = BLOCKS[title]
        named = {name.replace("__", "."): value for name, value in others.items()}
        if "ssl.truststore.location" in block.settings():
            named["ssl.truststore.location"] = str(self.kafka.ca)
        return block.settings(secrets, **{"bootstrap.servers": self.kafka.listener(listener)}, **named)

    def expect_written(self, topic: str, settings: Mapping[str, str]) -> None:
        write(settings, topic)
        assert numbers(self.kafka, topic) == [0, 1, 2]


@pytest.fixture
def place(secure_kafka: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(secure_kafka, tmp_path, monkeypatch)


@pytest.fixture
def proxy() -> Iterator[SmallProxy]:
    made = SmallProxy("socks5", "sink", PASSWORD)
    yield made
    made.close()


def test_tls(place: Place, topic: str) -> None:
    place.expect_written(topic, place.settings("TLS", "SSL"))


def test_mtls(place: Place, topic: str) -> None:
    place.secrets(KAFKA_KEY_PASSWORD=KEY_PASSWORD)
    client = place.kafka.client
    store = place.file("client.pem", client.encrypted_key_pem(KEY_PASSWORD) + client.chain_pem)
    place.expect_written(topic, place.settings("mTLS", "MTLS", ssl__keystore__location=store))


@pytest.mark.parametrize("title", ["SCRAM", "SCRAM 2", "Redpanda"])
def test_a_user_and_a_password(place: Place, topic: str, title: str) -> None:
    place.secrets(KAFKA_PASSWORD=PASSWORD)
    place.expect_written(topic, place.settings(title, "SASL_SSL"))


def test_confluent_cloud(place: Place, topic: str) -> None:
    place.secrets(CONFLUENT_API_KEY=USER, CONFLUENT_API_SECRET=PASSWORD)
    place.expect_written(topic, place.settings("Confluent Cloud", "SASL_SSL"))


def test_confluent_cloud_with_an_identity_pool(place: Place, topic: str) -> None:
    place.secrets(OAUTH_CLIENT_SECRET="client-secret")
    url = place.kafka.oidc.token_url(LONG)
    title = "Confluent Cloud with an identity pool"
    place.expect_written(topic, place.settings(title, "SASL_SSL", sasl__oauthbearer__token__endpoint__url=url))


def test_oidc(place: Place, topic: str) -> None:
    secret = place.file("oauth.properties", "secret=client-secret\n")
    settings = place.settings(
        "OIDC",
        "SASL_SSL",
        sasl__oauthbearer__token__endpoint__url=place.kafka.oidc.token_url(LONG),
        sasl__oauthbearer__client__credentials__client__secret=f"${{file:{secret}:secret}}",
        sasl__oauthbearer__ca__location=str(place.kafka.ca),
    )
    place.expect_written(topic, settings)


def test_azure_event_hubs(place: Place, topic: str) -> None:
    place.secrets(EVENT_HUBS_CONNECTION_STRING=PASSWORD)
    settings = place.settings("Azure Event Hubs", "SASL_SSL")
    assert settings["sasl.username"] == EVENT_HUBS
    place.expect_written(topic, settings)


def test_aiven(place: Place, topic: str) -> None:
    settings = place.settings(
        "Aiven",
        "MTLS",
        ssl__ca__location=str(place.kafka.ca),
        ssl__certificate__location=place.file("service.cert", place.kafka.client.chain_pem),
        ssl__key__location=place.file("service.key", place.kafka.client.key_pem),
    )
    place.expect_written(topic, settings)


def test_kerberos(place: Place, topic: str, keytab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key table of the block, not that of the environment."""
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    pytest.importorskip("gssapi", reason="python-gssapi is not installed: pip install gssapi, which needs libkrb5-dev")
    jaas = BLOCKS["Kerberos"].settings()["sasl.jaas.config"]
    jaas = re.sub('keyTab="[^"]*"', f'keyTab="{keytab}"', jaas).replace("EXAMPLE.COM", REALM)
    place.expect_written(topic, place.settings("Kerberos", "SASL_SSL", sasl__jaas__config=jaas))


def test_databricks_secrets(place: Place, topic: str) -> None:
    place.expect_written(topic, place.settings("Databricks secrets", "SASL_SSL", {"user": USER, "password": PASSWORD}))


def test_delegation_tokens(place: Place, topic: str) -> None:
    token_id, hmac = place.kafka.delegation_token()
    place.secrets(KAFKA_TOKEN_ID=token_id, KAFKA_TOKEN_HMAC=hmac)
    place.expect_written(topic, place.settings("Delegation tokens", "SASL_SSL"))


def test_a_proxy(place: Place, topic: str, proxy: SmallProxy) -> None:
    place.secrets(PROXY_PASSWORD=PASSWORD)
    url = BLOCKS["Proxy"].settings()["proxy.url"].replace("proxy.example.com:1080", "{}:{}".format(*proxy.address))
    place.expect_written(topic, place.settings("Proxy", "SSL", proxy__url=url))
    assert set(proxy.targets) == {("localhost", place.kafka.port("SSL"))}


def test_no_block_is_left_out() -> None:
    tried = {"TLS", "mTLS", "SCRAM", "SCRAM 2", "Redpanda", "Confluent Cloud", "Confluent Cloud with an identity pool", "OIDC"}
    tried |= {"Azure Event Hubs", "Aiven", "Kerberos", "Databricks secrets", "Delegation tokens", "Proxy"}
    assert set(BLOCKS) == tried | IN_CLOUDS
