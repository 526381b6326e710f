"""Every option of security once: TLS, SASL, tokens, proxies, by the names of Java's client and those of librdkafka.

The fields of `SecurityConfig` are the table, as those of `ProducerConfig` are. Options that Java does not have say
`java=REQUIRED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from spark_kafka_sink.option import FILLED, MILLISECONDS, PLUGIN, REQUIRED, Kind, Option, declared, one_of
from spark_kafka_sink.secret import Secret

PROTOCOLS = one_of(**{name.lower(): name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")})
STORE_TYPES = one_of(pem="PEM", pkcs12="PKCS12", jks="JKS")


def _identification(value: object) -> str:
    text = str(value).strip().lower()
    if text not in ("https", ""):
        raise ValueError
    return text


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError
    return Secret(value)


IDENTIFICATION = Kind("https, or empty for any host name", _identification)
SECRET = Kind("one or more characters", _secret, is_secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """How to reach brokers and who we say we are, checked; `security_config` makes one. Immutable and hashable.

    Texts may hold references such as `${env:NAME}`: `resolve` and `Secret.reveal` read them where they are used.
    """

    security_protocol: str = declared(
        "security.protocol", PROTOCOLS, "PLAINTEXT", "How brokers are spoken to: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    )
    ssl_truststore_location: str | None = declared(
        "ssl.truststore.location", FILLED, None, "File of the certificate authorities to trust: PEM, PKCS12 or JKS."
    )
    ssl_truststore_type: str | None = declared(
        "ssl.truststore.type", STORE_TYPES, None, "PEM, PKCS12 or JKS; without it the file's first bytes say it.", java="JKS"
    )
    ssl_truststore_certificates: Secret | None = declared(
        "ssl.truststore.certificates", SECRET, None, "Certificates to trust, as PEM text."
    )
    ssl_truststore_password: Secret | None = declared("ssl.truststore.password", SECRET, None, "Password of the trust store.")
    ssl_keystore_location: str | None = declared(
        "ssl.keystore.location", FILLED, None, "File of the client's key and certificates: PEM or PKCS12."
    )
    ssl_keystore_type: str | None = declared(
        "ssl.keystore.type", STORE_TYPES, None, "PEM, PKCS12 or JKS; without it the file's first bytes say it.", java="JKS"
    )
    ssl_keystore_certificate_chain: Secret | None = declared(
        "ssl.keystore.certificate.chain", SECRET, None, "The client's certificate and those that signed it, as PEM text."
    )
    ssl_keystore_key: Secret | None = declared("ssl.keystore.key", SECRET, None, "The client's private key, as PEM text (PKCS8).")
    ssl_keystore_password: Secret | None = declared("ssl.keystore.password", SECRET, None, "Password of the key store.")
    ssl_key_password: Secret | None = declared("ssl.key.password", SECRET, None, "Password of the private key.")
    ssl_endpoint_identification_algorithm: str = declared(
        "ssl.endpoint.identification.algorithm",
        IDENTIFICATION,
        "https",
        "https: the broker's certificate must be for its host name; empty: any name will do.",
    )
    ssl_protocol: str | None = declared(
        "ssl.protocol", FILLED, None, "TLSv1.2 or TLSv1.3: the newest version to speak.", java="TLSv1.3"
    )
    ssl_enabled_protocols: str | None = declared(
        "ssl.enabled.protocols", FILLED, None, "Versions of TLS to speak, with commas between.", java="TLSv1.2,TLSv1.3"
    )
    ssl_cipher_suites: str | None = declared(
        "ssl.cipher.suites", FILLED, None, "Cipher suites to offer, with commas between, by the names of the IETF or of OpenSSL."
    )
    ssl_ca_location: str | None = declared(
        "ssl.ca.location", FILLED, None, "librdkafka's name of ssl.truststore.location, for PEM.", java=REQUIRED
    )
    ssl_certificate_location: str | None = declared(
        "ssl.certificate.location", FILLED, None, "librdkafka's: file of the client's certificate, as PEM.", java=REQUIRED
    )
    ssl_key_location: str | None = declared(
        "ssl.key.location", FILLED, None, "librdkafka's: file of the client's private key, as PEM.", java=REQUIRED
    )
    sasl_mechanism: str | None = declared(
        "sasl.mechanism", FILLED, None, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM.", java="GSSAPI"
    )
    sasl_jaas_config: Secret | None = declared(
        "sasl.jaas.config", SECRET, None, "Java's login line; the class names in it may be shaded."
    )
    sasl_username: str | None = declared("sasl.username", FILLED, None, "librdkafka's: user of PLAIN and SCRAM.", java=REQUIRED)
    sasl_password: Secret | None = declared(
        "sasl.password", SECRET, None, "librdkafka's: password of PLAIN and SCRAM.", java=REQUIRED
    )
    sasl_kerberos_service_name: str | None = declared(
        "sasl.kerberos.service.name", FILLED, None, "The brokers' Kerberos name, mostly kafka."
    )
    sasl_login_connect_timeout_ms: int = declared(
        "sasl.login.connect.timeout.ms",
        MILLISECONDS,
        10_000,
        "How long connecting to the token endpoint may take, in ms.",
        java=None,
    )
    sasl_login_read_timeout_ms: int = declared(
        "sasl.login.read.timeout.ms", MILLISECONDS, 10_000, "How long the token endpoint may take to answer, in ms.", java=None
    )
    sasl_login_retry_backoff_ms: int = declared(
        "sasl.login.retry.backoff.ms", MILLISECONDS, 100, "First wait before the token endpoint is asked again, in ms."
    )
    sasl_login_retry_backoff_max_ms: int = declared(
        "sasl.login.retry.backoff.max.ms", MILLISECONDS, 10_000, "Longest wait before the token endpoint is asked again, in ms."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = declared(
        "sasl.oauthbearer.token.endpoint.url", FILLED, None, "Where client credentials are exchanged for a token (OIDC)."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = declared(
        "sasl.oauthbearer.client.credentials.client.id", FILLED, None, "Client id for the token endpoint."
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = declared(
        "sasl.oauthbearer.client.credentials.client.secret", SECRET, None, "Client secret for the token endpoint."
    )
    sasl_oauthbearer_scope: str | None = declared("sasl.oauthbearer.scope", FILLED, None, "Scope to ask the token endpoint for.")
    sasl_oauthbearer_extensions: str | None = declared(
        "sasl.oauthbearer.extensions",
        FILLED,
        None,
        "SASL extensions, name=value with commas between, such as logicalCluster=lkc-1.",
        java=REQUIRED,
    )
    sasl_oauthbearer_token: Secret | None = declared(
        "sasl.oauthbearer.token", SECRET, None, "A token that is used as it is.", java=REQUIRED
    )
    sasl_oauthbearer_token_provider: object = declared(
        "sasl.oauthbearer.token.provider",
        PLUGIN,
        None,
        "What makes tokens: azure, google, aws, or a Python callable that is told the broker's host.",
        java=REQUIRED,
    )
    sasl_oauthbearer_ca_location: str | None = declared(
        "sasl.oauthbearer.ca.location",
        FILLED,
        None,
        "PEM file of the authorities that the token endpoint's certificate is checked against.",
        java=REQUIRED,
    )
    proxy_url: Secret | None = declared(
        "proxy.url",
        SECRET,
        None,
        "A proxy to the brokers: socks5://, socks5h:// or http://, with user:password@ if it asks for one.",
        java=REQUIRED,
    )

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def settings(self) -> dict[str, object]:
        """Returns every option's value by its name; secrets are `Secret`s."""
        return {f.metadata["option"].name: getattr(self, f.name) for f in fields(self)}


SECURITY_OPTIONS: Mapping[str, Option] = {f.metadata["option"].name: f.metadata["option"] for f in fields(SecurityConfig)}
_FIELD_OF = {f.metadata["option"].name: f.name for f in fields(SecurityConfig)}

PLAINTEXT = SecurityConfig()


def security_config(settings: Mapping[str, object]) -> SecurityConfig:
    """Returns the settings of security from options by Kafka's names. Raises OptionError for what does not go together."""
    values: dict[str, Any] = {_FIELD_OF[name]: SECURITY_OPTIONS[name].parse(value) for name, value in settings.items()}
    return SecurityConfig(**values)
