"""How clients log in to the secure Kafka: settings by Kafka's names, which our client takes, and by librdkafka's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from tests.kafka_security.certificates import Authority, write_trust_store
from tests.kafka_security.oidc_server import AUDIENCE
from tests.kafka_security.secure_kafka import LISTENERS, ODD, ODD_PASSWORD, OIDC_CLIENT, PASSWORD, USER, SecureKafka

Settings = dict[str, str]
STORE_PASSWORD = "store-secret"
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


def with_jaas(kafka: SecureKafka, listener: str, mechanism: str, user: str, password: str, more: str = "") -> Settings:
    """Returns settings that log in with the line that Java's clients take. more: further options of the login module."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
    line = f'{_MODULES}.{module} required username="{quoted[0]}" password="{quoted[1]}"{more};'
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


def _file(kafka: SecureKafka, suffix: str, content: str | bytes) -> str:
    path = kafka.folder / f"client-{next(_numbers)}{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def _trusting(kafka: SecureKafka, listener: str, **more: str) -> Settings:
    settings = at(kafka, listener)
    del settings["ssl.ca.location"]
    return settings | {name.replace("__", "."): value for name, value in more.items()}


def _store(kind: str) -> Callable[[SecureKafka], Settings]:
    def settings(kafka: SecureKafka) -> Settings:
        path = kafka.folder / f"trust-{next(_numbers)}.{kind.lower()}"
        write_trust_store(kafka.ca, path, kind, STORE_PASSWORD)
        return _trusting(kafka, "SSL", ssl__truststore__location=str(path), ssl__truststore__password=STORE_PASSWORD)

    return settings


def mtls_by_files(kafka: SecureKafka) -> Settings:
    """Returns settings with the client's key and certificate in one PEM file, as Kafka has them."""
    return _trusting(
        kafka,
        "MTLS",
        ssl__truststore__location=str(kafka.ca),
        ssl__truststore__type="PEM",
        ssl__keystore__location=_file(kafka, ".pem", kafka.client.key_store),
        ssl__keystore__type="PEM",
    )


def mtls_by_librdkafkas_names(kafka: SecureKafka) -> Settings:
    """Returns settings that confluent-kafka takes as well: key and certificate in files of their own."""
    return at(
        kafka,
        "MTLS",
        ssl__key__location=_file(kafka, ".key", kafka.client.key),
        ssl__certificate__location=_file(kafka, ".crt", kafka.client.certificate),
    )


def _mtls_by_text(kafka: SecureKafka) -> Settings:
    return _trusting(
        kafka,
        "MTLS",
        ssl__truststore__certificates=kafka.authority.certificate,
        ssl__truststore__type="PEM",
        ssl__keystore__type="PEM",
        ssl__keystore__certificate__chain=kafka.client.certificate,
        ssl__keystore__key=kafka.client.key,
    )


def _mtls_by_encrypted_text(kafka: SecureKafka) -> Settings:
    encrypted = kafka.client.encrypted_key(KEY_PASSWORD)
    return _mtls_by_text(kafka) | {"ssl.keystore.key": encrypted, "ssl.key.password": KEY_PASSWORD}


def _mtls_by_pkcs12(kafka: SecureKafka) -> Settings:
    store = _file(kafka, ".p12", kafka.client.pkcs12(STORE_PASSWORD))
    return at(kafka, "MTLS", ssl__keystore__location=store, ssl__keystore__password=STORE_PASSWORD)


def _delegation_token(kafka: SecureKafka) -> Settings:
    token_id, hmac = kafka.delegation_token()
    return with_jaas(kafka, "SASL_SSL", "SCRAM-SHA-512", token_id, hmac, ' tokenauth="true"')


def _static_token(kafka: SecureKafka) -> Settings:
    token = kafka.oidc.token(OIDC_CLIENT)
    return at(kafka, "SASL_SSL", sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__token=token)


def stranger(kafka: SecureKafka, authority: Authority) -> Settings:
    """Returns settings with a certificate that another authority has signed."""
    identity = authority.issue("client-certificate")
    store = _file(kafka, ".pem", identity.key_store)
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

OTHER_WAYS: Mapping[str, Callable[[SecureKafka], Settings]] = {
    "trust-store-as-text": lambda kafka: _trusting(
        kafka, "SSL", ssl__truststore__certificates=kafka.authority.certificate, ssl__truststore__type="PEM"
    ),
    "trust-store-PKCS12": _store("PKCS12"),
    "trust-store-JKS": _store("JKS"),
    "ssl.ca.location": lambda kafka: at(kafka, "SSL"),
    "TLS-1.2": lambda kafka: at(kafka, "SSL", ssl__enabled__protocols="TLSv1.2", ssl__protocol="TLSv1.2"),
    "key-as-text": _mtls_by_text,
    "encrypted-key-as-text": _mtls_by_encrypted_text,
    "key-store-PKCS12": _mtls_by_pkcs12,
    "librdkafkas-names": mtls_by_librdkafkas_names,
    "PLAIN-by-JAAS-and-TLS": lambda kafka: with_jaas(kafka, "SASL_SSL", "PLAIN", USER, PASSWORD),
    "SCRAM-with-quotes": lambda kafka: with_jaas(kafka, "SASL_SSL", "SCRAM-SHA-256", ODD, ODD_PASSWORD),
    "delegation-token": _delegation_token,
    "static-token": _static_token,
}
"""Further ways to say the same."""
