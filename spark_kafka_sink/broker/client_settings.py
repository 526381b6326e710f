"""The client settings for an embedded broker, under Kafka's names and under librdkafka's."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_server import security_protocol
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.broker.sasl.oauthbearer_server import OAUTHBEARER
from spark_kafka_sink.errors import OptionError, UsageError

ANYBODY: Final = "client"
"""The user name for a broker without users."""

_MODULES: Final = "org.apache.kafka.common.security"


def client_settings(config: BrokerConfig, authority: CertificateAuthority | None, user: str | None) -> dict[str, str]:
    """Returns the security settings under Kafka's names, for Java's client and for this package's producer.

    Args:
        config: the broker's settings.
        authority: the authority that signs certificates; None without TLS.
        user: the user to log in as. None: the broker's first user.

    Raises:
        OptionError: the broker has no such user.
    """
    settings = {"security.protocol": security_protocol(config).value}
    if authority is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.certificate}
        if config.ssl_client_auth != "none":
            own = authority.client(user or ANYBODY)
            chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
            settings |= {"ssl.keystore.type": "PEM", chain: own.certificate, key: own.key}
    if not config.uses_sasl:
        return settings
    mechanism = _mechanism(config)
    settings["sasl.mechanism"] = mechanism
    if mechanism == OAUTHBEARER:
        if _can_sign(config):
            settings["sasl.oauthbearer.token"] = token(config, user or next(iter(config.sasl_users), ANYBODY))
        return settings
    name, password = _login(config, user)
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    settings["sasl.jaas.config"] = f"{_MODULES}.{module} required username={_quoted(name)} password={_quoted(password)};"
    return settings


def librdkafka_settings(config: BrokerConfig, authority: CertificateAuthority | None, user: str | None) -> dict[str, str]:
    """Returns the same settings under librdkafka's names, for confluent-kafka. OAUTHBEARER needs an `oauth_cb` too."""
    names = {
        "security.protocol": "security.protocol",
        "sasl.mechanism": "sasl.mechanism",
        "ssl.truststore.certificates": "ssl.ca.pem",
        "ssl.keystore.certificate.chain": "ssl.certificate.pem",
        "ssl.keystore.key": "ssl.key.pem",
    }
    given = client_settings(config, authority, user)
    settings = {names[name]: value for name, value in given.items() if name in names}
    if config.uses_sasl and _mechanism(config) != OAUTHBEARER:
        settings["sasl.username"], settings["sasl.password"] = _login(config, user)
    return settings


def token(config: BrokerConfig, user: str, valid_s: float = 3600, **claims: Any) -> str:
    """Returns an OAUTHBEARER token that the broker accepts. It is signed with the broker's secret, or unsigned without a key.

    Args:
        config: the broker's settings.
        user: the token's principal.
        valid_s: the seconds until the token expires. A negative value returns an expired token.
        claims: other claims, such as `scope`. They override the default ones.

    Raises:
        UsageError: the broker has only a public key.
    """
    if not _can_sign(config):
        raise UsageError("the broker has only a public key: sign tokens with the matching private key")
    now_s = time.time()
    body: dict[str, Any] = {config.sasl_oauthbearer_sub_claim_name: user, "iat": min(now_s, now_s + valid_s - 1)}
    body["exp"] = now_s + valid_s
    if config.sasl_oauthbearer_expected_issuer is not None:
        body["iss"] = config.sasl_oauthbearer_expected_issuer
    if config.sasl_oauthbearer_expected_audience:
        body["aud"] = list(config.sasl_oauthbearer_expected_audience)
    secret = config.oauthbearer_key
    signed = f"{_part({'alg': 'none' if secret is None else 'HS256'})}.{_part(body | claims)}"
    signature = b"" if secret is None else hmac.digest(secret.encode(), signed.encode(), "sha256")
    return f"{signed}.{_base64url(signature)}"


def _can_sign(config: BrokerConfig) -> bool:
    key = config.oauthbearer_key
    if key is None:
        return config.sasl_oauthbearer_jwks_endpoint_url is None
    return "-----BEGIN" not in key and not key.lstrip().startswith("{")


def _part(value: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _mechanism(config: BrokerConfig) -> str:
    """Returns the first mechanism that a client can use. All but OAUTHBEARER need a user with a password."""
    usable = [each for each in config.sasl_mechanisms if config.sasl_users or each == OAUTHBEARER]
    return usable[0]


def _login(config: BrokerConfig, user: str | None) -> tuple[str, str]:
    name = next(iter(config.sasl_users)) if user is None else user
    if name not in config.sasl_users:
        raise OptionError(f"there is no user {name!r}; it must be one of {', '.join(config.sasl_users)}", option="user")
    return name, config.sasl_users[name]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
