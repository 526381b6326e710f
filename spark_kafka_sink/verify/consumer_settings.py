"""Settings of confluent-kafka's consumer from the sink's own options, so that both name the cluster only once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.security.credentials import user_and_password

_SAME: Final = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
)
"""Options that have one name here and in librdkafka."""
_OTHER: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.ca.location": "https.ca.location",
}


def consumer_settings(config: ProducerConfig) -> dict[str, str]:
    """Returns the brokers, TLS and login of a producer under librdkafka's names.

    What librdkafka has no counterpart for is left out: Java's trust stores, callables and tokens from clouds.

    Raises:
        OptionError: a reference in a value cannot be resolved.
    """
    found = {"bootstrap.servers": ",".join(config.bootstrap_servers)}
    given = config.security.given()
    if not given:
        return found
    names = {**{name: name for name in _SAME}, **_OTHER}
    for name, value in given.items():
        if name in names and value is not None and not (name.startswith("sasl.") and not config.security.uses_sasl):
            found[names[name]] = value.reveal() if isinstance(value, Secret) else resolve(str(value))
    if config.security.uses_sasl and config.security.sasl_mechanism.startswith(("PLAIN", "SCRAM")):
        user, password = user_and_password(config.security)
        found |= {"sasl.mechanism": config.security.sasl_mechanism, "sasl.username": user, "sasl.password": password.reveal()}
    if given.get("ssl.truststore.type") == "PEM" and config.security.ssl_truststore_location is not None:
        found.setdefault("ssl.ca.location", config.security.ssl_truststore_location)
    if "sasl.oauthbearer.token.endpoint.url" in found:
        found["sasl.oauthbearer.method"] = "oidc"
    if not config.security.ssl_endpoint_identification_algorithm:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found
