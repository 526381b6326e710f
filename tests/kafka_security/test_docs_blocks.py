"""The blocks of docs/security.md write to a real Kafka that asks for what they have.

Only names, addresses, files and secrets are others. Amazon's and Google's logins have no broker outside of their clouds: see
tests/security/sasl/ for those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.docs.security_blocks import BLOCKS
from tests.kafka_security.secure_kafka import ALICE, CONNECTION_STRING, OIDC_CLIENT, PASSWORD, SecureKafka
from tests.kafka_security.writing import numbers, write
from tests.network.small_proxy import SmallProxy
from tests.security.kdc import REALM

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KEY_PASSWORD = "key-secret"
ELSEWHERE = {"Amazon MSK with IAM", "Google managed Kafka"}


class Here:
    """What stands for what the page names: texts to replace, and environment variables."""

    def __init__(self, kafka: SecureKafka, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._kafka = kafka
        self._folder = folder
        self._environment = environment
        self.texts = {
            "/etc/kafka/ca.pem": str(kafka.ca),
            "/Volumes/main/kafka/certificates/ca.pem": str(kafka.ca),
            "/etc/kafka/login-ca.pem": str(kafka.ca),
            "https://login.example.com/oauth2/token": kafka.oidc.token_url(),
            "/etc/kafka/client.pem": self.file("client.pem", kafka.client.encrypted_key(KEY_PASSWORD) + kafka.client.certificate),
            "/etc/kafka/service.cert": self.file("service.cert", kafka.client.certificate),
            "/etc/kafka/service.key": self.file("service.key", kafka.client.key),
            "/etc/kafka/oauth.properties": self.file("oauth.properties", "secret=client-secret\n"),
        }
        self.variables(
            KAFKA_KEY_PASSWORD=KEY_PASSWORD,
            KAFKA_PASSWORD=PASSWORD,
            CONFLUENT_API_KEY=ALICE,
            CONFLUENT_API_SECRET=PASSWORD,
            OAUTH_CLIENT_SECRET="client-secret",
            EVENT_HUBS_CONNECTION_STRING=CONNECTION_STRING,
            SSL_CERT_FILE=str(kafka.ca),  # the system's authorities
        )

    def file(self, name: str, content: str) -> str:
        path = self._folder / name
        path.write_text(content)
        return str(path)

    def variables(self, **values: str) -> None:
        for name, value in values.items():
            self._environment.setenv(name, value)

    def settings(self, title: str, listener: str, user: str = "") -> dict[str, str]:
        """Returns a block's options by Kafka's names. user: stands for the user or client that the block names."""
        settings = BLOCKS[title].settings({"user": ALICE, "password": PASSWORD})
        for name, value in settings.items():
            for text, other in self.texts.items():
                settings[name] = settings[name].replace(text, other)
            if value == "sink":
                settings[name] = user
            elif name == "sasl.jaas.config":
                settings[name] = settings[name].replace('username="sink"', f'username="{user}"')
        return settings | {"bootstrap.servers": self._kafka.listener(listener)}


@pytest.fixture
def here(secure_kafka: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(secure_kafka, tmp_path, monkeypatch)


LISTENERS: Mapping[str, tuple[str, str]] = {
    "mTLS": ("MTLS", ""),
    "SCRAM": ("SASL_SSL", ALICE),
    "SCRAM 2": ("SASL_SSL", ALICE),
    "Confluent Cloud": ("SASL_SSL", ""),
    "Confluent Cloud with an identity pool": ("SASL_SSL", OIDC_CLIENT),
    "OIDC": ("SASL_SSL", OIDC_CLIENT),
    "Azure Event Hubs": ("SASL_SSL", ""),
    "Redpanda": ("SASL_SSL", ALICE),
    "Aiven": ("MTLS", ""),
    "Databricks secrets": ("SASL_SSL", ""),
}
"""By title: the listener, and who logs in."""
OF_THEIR_OWN = {"Kerberos", "Delegation tokens", "Proxy", "Azure Event Hubs with Entra ID"}


def test_every_block_of_the_page_is_run() -> None:
    assert {*LISTENERS, *OF_THEIR_OWN, *ELSEWHERE} == set(BLOCKS)


@pytest.mark.parametrize("title", LISTENERS)
def test_a_block_writes(here: Here, secure_kafka: SecureKafka, topic: str, title: str) -> None:
    write(here.settings(title, *LISTENERS[title]), topic)
    assert numbers(secure_kafka, topic) == [0, 1, 2]


def test_the_block_of_kerberos_writes(here: Here, secure_kafka: SecureKafka, topic: str, alices_keytab: Path) -> None:
    pytest.importorskip("gssapi", reason="python-gssapi is not installed: pip install gssapi, which needs libkrb5-dev")
    here.texts |= {"/etc/kafka/sink.keytab": str(alices_keytab), "sink@EXAMPLE.COM": f"{ALICE}@{REALM}"}
    write(here.settings("Kerberos", "SASL_SSL"), topic)
    assert numbers(secure_kafka, topic) == [0, 1, 2]


def test_the_block_of_delegation_tokens_writes(here: Here, secure_kafka: SecureKafka, topic: str) -> None:
    token_id, hmac = secure_kafka.delegation_token()
    here.variables(KAFKA_TOKEN_ID=token_id, KAFKA_TOKEN_HMAC=hmac)
    write(here.settings("Delegation tokens", "SASL_SSL"), topic)
    assert numbers(secure_kafka, topic) == [0, 1, 2]


@pytest.fixture
def proxy() -> Iterator[SmallProxy]:
    with closing(SmallProxy("socks5h", "sink", "proxy-secret")) as made:
        yield made


def test_the_block_of_the_proxy_writes(here: Here, secure_kafka: SecureKafka, topic: str, proxy: SmallProxy) -> None:
    here.variables(PROXY_PASSWORD="proxy-secret")
    host, port = proxy.address
    here.texts["proxy.example.com:1080"] = f"{host}:{port}"
    write(here.settings("Proxy", "SSL"), topic)
    assert numbers(secure_kafka, topic) == [0, 1, 2]
    assert set(proxy.targets) == {("localhost", secure_kafka.port("SSL"))}


def test_the_block_of_entra_id_writes(here: Here, secure_kafka: SecureKafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With azure-identity's own interface; the token is another provider's."""
    identity = pytest.importorskip("azure.identity")
    asked: list[str] = []

    def get_token(scope: str) -> SimpleNamespace:
        asked.append(scope)
        return SimpleNamespace(token=secure_kafka.oidc.token(OIDC_CLIENT), expires_on=time.time() + 3600)

    made: Callable[..., SimpleNamespace] = lambda **_: SimpleNamespace(get_token=get_token)  # noqa: E731
    monkeypatch.setattr(identity, "DefaultAzureCredential", made)
    write(here.settings("Azure Event Hubs with Entra ID", "SASL_SSL"), topic)
    assert numbers(secure_kafka, topic) == [0, 1, 2]
    assert set(asked) == {"https://localhost/.default"}
