"""How clients log in to the secure Kafka: settings by Kafka's names, which our client takes, and by librdkafka's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from tests.kafka_security.oidc_server import AUDIENCE
from tests.kafka_security.secure_kafka import LISTENERS, OIDC_CLIENT, PASSWORD, USER, SecureKafka, pem_of
from tests.security.certificates import Authority

Settings = dict[str, str]
KEY_PASSWORD = "key-secret"
_MODULES = "org.apache.kafka.common.security"
_numbers = itertools.count()


def at(kafka: SecureKafka, listener: str, **more: str) -> Settings:
    """Returns the settings of a client of a listener that trusts its authority. `__` in a name stands for a dot."""
    protocol = LISTENERS[listener]
    settings = {"bootstrap.servers": kafka.listener(listener), "security.protocol": protocol}
    if protocol in ("SSL", "SASL_SSL"):
        settings["ssl.ca.location"] = str(kafka.ca)
    return settings | {name.replace("__", "."): value for name, value in more.items()}


def with_password(kafka: SecureKafka, listener: str, mechanism: str, user: str = USER, password: str = PASSWORD) -> Settings:
    """Returns settings that log in by librdkafka's names of user and password."""
    return at(kafka, listener, sasl__mechanism=mechanism, sasl__username=user, sasl__password=password)


def with_jaas(kafka: SecureKafka, listener: str, mechanism: str, user: str, password: str) -> Settings:
    """Returns settings that log in with the line that Java's clients take."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
    line = f'{_MODULES}.{module} required username="{quoted[0]}" password="{quoted[1]}";'
    return at(kafka, listener, sasl__mechanism=mechanism, sasl__jaas__config=line)


def client_credentials(kafka: SecureKafka, listener: str = "SASL_SSL", *, issuer: str = "kafka") -> Settings:
    """Returns settings that exchange client credentials for a token at the OpenID Connect server."""
    return at(
        kafka,
        listener,
        sasl__mechanism="OAUTHBEARER",
        sasl__oauthbearer__token__endpoint__url=kafka.oidc.token_url(issuer),
        sasl__oauthbearer__client__credentials__client__id=OIDC_CLIENT,
        sasl__oauthbearer__client__credentials__client__secret="client-secret",
        sasl__oauthbearer__scope=AUDIENCE,
    )


def _file(kafka: SecureKafka, content: str | bytes) -> str:
    path = kafka.folder / f"client-{next(_numbers)}.pem"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def _trusting(kafka: SecureKafka, listener: str, **more: str) -> Settings:
    settings = at(kafka, listener)
    del settings["ssl.ca.location"]
    return settings | {name.replace("__", "."): value for name, value in more.items()}


def mtls_by_files(kafka: SecureKafka) -> Settings:
    """Returns settings with the client's key and certificate in one PEM file, as Kafka has them."""
    return _trusting(
        kafka,
        "MTLS",
        ssl__truststore__location=str(kafka.ca),
        ssl__truststore__type="PEM",
        ssl__keystore__location=_file(kafka, pem_of(kafka.client)),
        ssl__keystore__type="PEM",
    )


def stranger(kafka: SecureKafka, authority: Authority) -> Settings:
    """Returns settings with a certificate that another authority has signed."""
    identity = authority.issue("client-certificate", client=True)
    store = _file(kafka, pem_of(identity))
    return at(kafka, "MTLS", ssl__keystore__location=store, ssl__keystore__type="PEM")


ONE_OF_EACH: Mapping[str, Callable[[SecureKafka], Settings]] = {
    "SSL": lambda kafka: _trusting(kafka, "SSL", ssl__truststore__location=str(kafka.ca), ssl__truststore__type="PEM"),
    "mTLS": mtls_by_files,
    "PLAIN": lambda kafka: with_password(kafka, "SASL_PLAINTEXT", "PLAIN"),
    "SCRAM-SHA-256": lambda kafka: with_password(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda kafka: with_jaas(kafka, "SASL_SSL", "SCRAM-SHA-512", USER, PASSWORD),
    "OAUTHBEARER": client_credentials,
}
"""One way for each mechanism but Kerberos, by our client's names."""
