"""Secrets with quotes and backslashes, for every option that can hold one. Wherever `MARK` is seen, one has leaked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.options.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.options.security_config import SECURITY_OPTIONS

MARK: Final = "hunter2"
SECRET: Final = f"{MARK}\"'\\{MARK}"
JAAS: Final = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{MARK}\\"\'\\\\{MARK}";'
)
USER: Final = "alice"
VARIABLE: Final = "PASSWORD_OF_ALICE"
VARIABLE_OF_LOGIN: Final = "LOGIN_OF_ALICE"

LOGIN: Final = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
USER_AND_PASSWORD: Final = {**LOGIN, "sasl.username": USER, "sasl.password": SECRET}

# With these a login works: one way to the password, and no proxy.
PLANTED: Final[Mapping[str, str]] = {
    **LOGIN,
    **{
        name: SECRET
        for name, option in SECURITY_OPTIONS.items()
        if option.kind.is_secret and name not in ("sasl.password", "proxy.url")
    },
    "sasl.jaas.config": JAAS,
}

_TOKEN: Final = {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "max.block.ms": "2000"}
_TLS: Final = {"security.protocol": "SSL", "max.block.ms": "2000"}

MISSPELLED: Final = "misspelled"
WRONG_PASSWORD: Final = "wrong-password"

FAILING: Final[Mapping[str, Mapping[str, str]]] = {
    MISSPELLED: {**PLANTED, "sasl.pasword": SECRET},
    "no-jaas": {**LOGIN, "sasl.jaas.config": SECRET},
    "wrong-jaas": {**LOGIN, "sasl.jaas.config": JAAS.replace("\\", "")},
    "no-proxy": {**PLANTED, "proxy.url": SECRET},
    "proxy": {**PLANTED, "proxy.url": f"socks5://alice:{MARK}%22%27%5C{MARK}@127.0.0.1:1", "max.block.ms": "1000"},
    WRONG_PASSWORD: {**USER_AND_PASSWORD, "sasl.password": f"{SECRET} and more"},
    "no-reference": {**USER_AND_PASSWORD, "sasl.password": f"{SECRET}${{env:NOT_THERE}}"},
    "no-provider": {**USER_AND_PASSWORD, "sasl.password": f"{SECRET}${{{MARK}:{MARK}}}"},
    "token": {**_TOKEN, "sasl.oauthbearer.token": SECRET},
    "token-endpoint": {
        **_TOKEN,
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    },
    "keys": {**_TLS, "ssl.keystore.key": SECRET, "ssl.keystore.certificate.chain": SECRET, "ssl.key.password": SECRET},
    "certificates": {**_TLS, "ssl.truststore.certificates": SECRET},
}
"""Options with which no record is delivered, by what is wrong with them."""


_AVRO: Final = {"value.format": "avro"}


def registry_planted(url: str) -> dict[str, str]:
    """Returns options of the sink with which the login to a registry works."""
    secrets = {name: SECRET for name, option in REGISTRY_OPTIONS.items() if option.kind.is_secret and ".ssl." in name}
    login = {"schema.registry.url": url, "schema.registry.basic.auth.user.info": f"{USER}:{SECRET}"}
    return {**_AVRO, **secrets, **login}


def registry_failing(url: str) -> Mapping[str, Mapping[str, str]]:
    """Returns options of the sink with which the registry gives no schema, by what is wrong with them."""
    given = {**_AVRO, "schema.registry.url": url, "schema.registry.max.retries": "0"}
    login = f"{USER}:{MARK}%22%27%5C{MARK}@"
    return {
        "password": {**given, "schema.registry.basic.auth.user.info": f"{USER}:{SECRET} and more"},
        "no-user": {**given, "schema.registry.basic.auth.user.info": SECRET},
        "misspelled": {**given, "schema.registry.basic.auth.user.inof": SECRET},
        "url": {**given, "schema.registry.url": url.replace("://", f"://{login.replace('@', '%20@')}")},
        "no-url": {**given, "schema.registry.url": SECRET},
        "token": {**given, "schema.registry.bearer.auth.token": SECRET},
        "token-endpoint": {
            **given,
            "schema.registry.bearer.auth.issuer.endpoint.url": "http://127.0.0.1:1/token",
            "schema.registry.bearer.auth.client.id": "me",
            "schema.registry.bearer.auth.client.secret": SECRET,
        },
        "two-logins": {**registry_planted(url), "schema.registry.bearer.auth.token": SECRET},
        "proxy": {**given, "schema.registry.proxy": f"http://{login}127.0.0.1:1"},
        "no-proxy": {**given, "schema.registry.proxy": SECRET},
        "no-reference": {**given, "schema.registry.basic.auth.user.info": f"{SECRET}${{env:NOT_THERE}}"},
    }
