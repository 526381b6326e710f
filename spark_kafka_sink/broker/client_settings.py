"""The client settings for an embedded broker, under Kafka's names and under librdkafka's."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_server import security_protocol
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.errors import OptionError

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
    mechanism = settings["sasl.mechanism"] = config.sasl_mechanisms[0]
    name, password = _login(config, user)
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    settings["sasl.jaas.config"] = f"{_MODULES}.{module} required username={_quoted(name)} password={_quoted(password)};"
    return settings


def librdkafka_settings(config: BrokerConfig, authority: CertificateAuthority | None, user: str | None) -> dict[str, str]:
    """Returns the same settings under librdkafka's names, for confluent-kafka."""
    names = {
        "security.protocol": "security.protocol",
        "sasl.mechanism": "sasl.mechanism",
        "ssl.truststore.certificates": "ssl.ca.pem",
        "ssl.keystore.certificate.chain": "ssl.certificate.pem",
        "ssl.keystore.key": "ssl.key.pem",
    }
    given = client_settings(config, authority, user)
    settings = {names[name]: value for name, value in given.items() if name in names}
    if config.uses_sasl:
        settings["sasl.username"], settings["sasl.password"] = _login(config, user)
    return settings


def _login(config: BrokerConfig, user: str | None) -> tuple[str, str]:
    name = next(iter(config.sasl_users)) if user is None else user
    if name not in config.sasl_users:
        raise OptionError(f"there is no user {name!r}; the users are {', '.join(config.sasl_users)}", option="user")
    return name, config.sasl_users[name]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
