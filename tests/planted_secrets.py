"""Secrets with quotes and backslashes, for every option that can hold one. Wherever `MARK` is seen, one has leaked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.security_config import SECURITY_OPTIONS

MARK: Final = "hunter2"
SECRET: Final = f"{MARK}\"'\\{MARK}"
JAAS: Final = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{MARK}\\"\'\\\\{MARK}";'
)
USER: Final = "alice"
VARIABLE: Final = "PASSWORD_OF_ALICE"

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
