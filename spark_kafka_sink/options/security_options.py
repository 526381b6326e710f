"""All security options: TLS, SASL, tokens and proxies, under the names of Java's client and librdkafka.

The fields of `SecurityConfig` are the table, like those of `ProducerConfig`. Options that Java does not have say `java=ABSENT`.
`security_config.py` reads the options and checks how they fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import (
    ABSENT,
    BOOLEAN,
    MILLISECONDS,
    PLUGIN,
    Kind,
    Option,
    declared,
    integer,
    number,
    one_name_of,
)
from spark_kafka_sink.options.secret import DEFAULT_PROVIDERS, Providers, Secret

PROTOCOLS = one_name_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES = one_name_of("PEM", "PKCS12", "JKS")
MECHANISMS = one_name_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")

_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_BROKEN_TLS: Final = ("sslv2hello", "sslv3", "tlsv1", "tlsv1.1")


def _identification(value: object) -> str:
    text = str(value).strip().lower()
    if text not in ("https", "", "none"):  # librdkafka writes none, Java an empty value
        raise ValueError
    return "" if text == "none" else text


def _tls_version(value: object) -> str:
    return "TLSv1.3" if str(value).strip() == "TLS" else _tls_versions_of("ssl.protocol", [value])


def _tls_versions(value: object) -> str:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    return _tls_versions_of("ssl.enabled.protocols", [part for part in parts if str(part).strip()])


def _tls_versions_of(option: str, parts: list[object] | list[str] | tuple[object, ...]) -> str:
    by_lower = {name.lower(): name for name in _TLS_VERSIONS}
    lower = [str(part).strip().lower() for part in parts]
    if any(part in _BROKEN_TLS for part in lower):
        text = f"option {option}: TLS versions before 1.2 are insecure (RFC 8996) and not supported; use TLSv1.2 or TLSv1.3"
        raise OptionError(text, option=option)
    if not lower or any(part not in by_lower for part in lower):
        raise ValueError
    return ",".join(dict.fromkeys(by_lower[part] for part in lower))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _list(value: object) -> str:
    return _text(",".join(map(str, value)) if isinstance(value, list | tuple) else value)


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError
    return Secret(value)


IDENTIFICATION = Kind("https, or empty for any host name", _identification)
TLS_VERSION = Kind("TLSv1.2 or TLSv1.3", _tls_version)
TLS_VERSIONS = Kind("TLSv1.2, TLSv1.3 or both, separated by a comma", _tls_versions)
SECRET = Kind("a non-empty string", _secret, is_secret=True, keeps_references=True)
LATER = Kind("a non-empty string", _text, keeps_references=True)
CLAIM = Kind("a non-empty string", _text)
CIPHERS = Kind("a comma-separated list of names", _list)
CLASS_NAME = Kind("the name of a Java class", _text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The settings for connecting and logging in to brokers, validated by `security_config()`. Immutable and hashable.

    Values may contain references such as `${env:NAME}`, which `resolve` and `Secret.reveal` resolve on use.
    """

    security_protocol: str = declared(
        "security.protocol",
        PROTOCOLS,
        "PLAINTEXT",
        "Protocol for broker connections: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    ssl_truststore_location: str | None = declared(
        "ssl.truststore.location",
        LATER,
        None,
        "File of trusted certificate authorities: PEM, PKCS12 or JKS. Defaults to the system's authorities.",
    )
    ssl_truststore_type: str | None = declared(
        "ssl.truststore.type",
        STORE_TYPES,
        None,
        "PEM, PKCS12 or JKS. By default the format is detected from the file.",
        java="JKS",
        differs="Java does not detect the format.",
    )
    ssl_truststore_certificates: Secret | None = declared(
        "ssl.truststore.certificates", SECRET, None, "Trusted certificates as PEM text. librdkafka: ssl.ca.pem."
    )
    ssl_truststore_password: Secret | None = declared("ssl.truststore.password", SECRET, None, "Password of the trust store.")
    ssl_keystore_location: str | None = declared(
        "ssl.keystore.location", LATER, None, "File of the client's key and certificates: PEM or PKCS12."
    )
    ssl_keystore_type: str | None = declared(
        "ssl.keystore.type",
        STORE_TYPES,
        None,
        "PEM or PKCS12. By default the format is detected from the file. JKS is not supported and raises an error.",
        java="JKS",
        differs="Java does not detect the format, and supports JKS.",
    )
    ssl_keystore_certificate_chain: Secret | None = declared(
        "ssl.keystore.certificate.chain",
        SECRET,
        None,
        "The client's certificate chain as PEM text. librdkafka: ssl.certificate.pem.",
    )
    ssl_keystore_key: Secret | None = declared(
        "ssl.keystore.key", SECRET, None, "The client's private key as PEM text (PKCS8). librdkafka: ssl.key.pem."
    )
    ssl_keystore_password: Secret | None = declared("ssl.keystore.password", SECRET, None, "Password of the key store.")
    ssl_key_password: Secret | None = declared("ssl.key.password", SECRET, None, "Password of the private key.")
    ssl_endpoint_identification_algorithm: str = declared(
        "ssl.endpoint.identification.algorithm",
        IDENTIFICATION,
        "https",
        "https: the broker's certificate must be valid for its host name. Empty: any host name is accepted, and a "
        "warning is logged at each start.",
    )
    ssl_protocol: str | None = declared(
        "ssl.protocol",
        TLS_VERSION,
        None,
        "Newest TLS version to use: TLSv1.2 or TLSv1.3. Defaults to TLSv1.3.",
        java="TLSv1.3",
        differs="The default means the same. Java also supports older versions.",
    )
    ssl_enabled_protocols: str | None = declared(
        "ssl.enabled.protocols",
        TLS_VERSIONS,
        None,
        "Comma-separated list of TLS versions to use. Defaults to TLSv1.2 and TLSv1.3.",
        java="TLSv1.2,TLSv1.3",
        differs="The default means the same. Java also supports older versions.",
    )
    ssl_cipher_suites: str | None = declared(
        "ssl.cipher.suites",
        CIPHERS,
        None,
        "Comma-separated list of cipher suites to offer, by IETF or OpenSSL name.",
        differs="Java accepts only IETF names.",
    )
    ssl_ca_location: str | None = declared(
        "ssl.ca.location",
        LATER,
        None,
        "librdkafka's name for ssl.truststore.location: a file or folder of PEM certificates, or probe for the system's.",
        java=ABSENT,
    )
    ssl_certificate_location: str | None = declared(
        "ssl.certificate.location", LATER, None, "PEM file of the client's certificate (librdkafka's name).", java=ABSENT
    )
    ssl_key_location: str | None = declared(
        "ssl.key.location", LATER, None, "PEM file of the client's private key (librdkafka's name).", java=ABSENT
    )
    sasl_mechanism: str = declared(
        "sasl.mechanism",
        MECHANISMS,
        "GSSAPI",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM. librdkafka: sasl.mechanisms.",
    )
    sasl_jaas_config: Secret | None = declared(
        "sasl.jaas.config",
        SECRET,
        None,
        "Java's JAAS login line. Class names may be shaded. A reference may stand inside the quotes or replace the whole line.",
        differs="Java resolves references before it parses the line, so a password that contains a quote breaks it.",
    )
    sasl_username: str | None = declared(
        "sasl.username", LATER, None, "User for PLAIN and SCRAM (librdkafka's name).", java=ABSENT
    )
    sasl_password: Secret | None = declared(
        "sasl.password", SECRET, None, "Password for PLAIN and SCRAM (librdkafka's name).", java=ABSENT
    )
    sasl_kerberos_service_name: str | None = declared(
        "sasl.kerberos.service.name", LATER, None, "First part of the brokers' Kerberos principals, usually kafka."
    )
    sasl_kerberos_principal: str | None = declared(
        "sasl.kerberos.principal", LATER, None, "The client's Kerberos principal, for a keytab (librdkafka's name).", java=ABSENT
    )
    sasl_kerberos_keytab: str | None = declared(
        "sasl.kerberos.keytab", LATER, None, "The client's keytab file (librdkafka's name).", java=ABSENT
    )
    sasl_client_callback_handler_class: str | None = declared(
        "sasl.client.callback.handler.class",
        CLASS_NAME,
        None,
        "Java class. Only Amazon's IAMClientCallbackHandler is supported, with AWS_MSK_IAM. Other classes raise an error.",
        differs="Java loads any class.",
    )
    sasl_login_callback_handler_class: str | None = declared(
        "sasl.login.callback.handler.class",
        CLASS_NAME,
        None,
        "Java class. Supported: Kafka's OAuthBearerLoginCallbackHandler, Amazon's IAMOAuthBearerLoginCallbackHandler, "
        "Google's GcpLoginCallbackHandler and Strimzi's JaasClientOauthLoginCallbackHandler. Other classes raise an "
        "error.",
        differs="Java loads any class.",
    )
    sasl_login_refresh_window_factor: float = declared(
        "sasl.login.refresh.window.factor", number(0.5, 1.0), 0.8, "Fraction of a token's lifetime after which it is renewed."
    )
    sasl_login_refresh_window_jitter: float = declared(
        "sasl.login.refresh.window.jitter",
        number(0.0, 0.25),
        0.05,
        "Maximum random fraction of the lifetime added to sasl.login.refresh.window.factor.",
    )
    sasl_login_refresh_min_period_seconds: int = declared(
        "sasl.login.refresh.min.period.seconds", integer(0, 900), 60, "Minimum time between two token renewals, in s."
    )
    sasl_login_refresh_buffer_seconds: int = declared(
        "sasl.login.refresh.buffer.seconds",
        integer(0, 3600),
        300,
        "Minimum time before a token's expiry at which it is renewed, in s.",
    )
    sasl_login_connect_timeout_ms: int = declared(
        "sasl.login.connect.timeout.ms",
        MILLISECONDS,
        10_000,
        "Time limit for connecting to the token endpoint, in ms.",
        java=None,
        differs="Java waits as long as the operating system does.",
    )
    sasl_login_read_timeout_ms: int = declared(
        "sasl.login.read.timeout.ms",
        MILLISECONDS,
        10_000,
        "Time limit for the token endpoint's response, in ms.",
        java=None,
        differs="Java waits forever.",
    )
    sasl_login_retry_backoff_ms: int = declared(
        "sasl.login.retry.backoff.ms", MILLISECONDS, 100, "Initial wait before retrying the token endpoint, in ms."
    )
    sasl_login_retry_backoff_max_ms: int = declared(
        "sasl.login.retry.backoff.max.ms", MILLISECONDS, 10_000, "Maximum wait before retrying the token endpoint, in ms."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = declared(
        "sasl.oauthbearer.token.endpoint.url",
        LATER,
        None,
        "URL of the OIDC provider's token endpoint, or a file:// URL of a file with the token.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = declared(
        "sasl.oauthbearer.client.credentials.client.id",
        LATER,
        None,
        "Client id for the token endpoint. librdkafka: sasl.oauthbearer.client.id; in JAAS: clientId.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = declared(
        "sasl.oauthbearer.client.credentials.client.secret",
        SECRET,
        None,
        "Client secret for the token endpoint. librdkafka: sasl.oauthbearer.client.secret; in JAAS: clientSecret.",
    )
    sasl_oauthbearer_scope: str | None = declared(
        "sasl.oauthbearer.scope", LATER, None, "Scope to request from the token endpoint; in JAAS: scope."
    )
    sasl_oauthbearer_header_urlencode: bool = declared(
        "sasl.oauthbearer.header.urlencode",
        BOOLEAN,
        False,
        "Whether to URL-encode the client id and secret before Base64, as RFC 6749 requires.",
    )
    sasl_oauthbearer_sub_claim_name: str = declared(
        "sasl.oauthbearer.sub.claim.name", CLAIM, "sub", "Token claim that holds the user name, for error messages."
    )
    sasl_oauthbearer_extensions: str | None = declared(
        "sasl.oauthbearer.extensions",
        LATER,
        None,
        "Comma-separated SASL extensions (name=value), such as logicalCluster=lkc-1; in JAAS: extension_NAME.",
        java=ABSENT,
    )
    sasl_oauthbearer_token: Secret | None = declared(
        "sasl.oauthbearer.token",
        SECRET,
        None,
        "A fixed token. It is not renewed, but a reference is resolved again at each login.",
        java=ABSENT,
    )
    sasl_oauthbearer_token_provider: object = declared(
        "sasl.oauthbearer.token.provider",
        PLUGIN,
        None,
        "Token source: azure, google, aws, or a Python callable that takes a broker's host name.",
        java=ABSENT,
    )
    sasl_oauthbearer_ca_location: str | None = declared(
        "sasl.oauthbearer.ca.location",
        LATER,
        None,
        "PEM file of authorities to trust for the token endpoint. librdkafka: https.ca.location.",
        java=ABSENT,
    )
    proxy_url: Secret | None = declared(
        "proxy.url",
        SECRET,
        None,
        "URL of a proxy to the brokers: socks5://, socks5h:// or http://, with user:password@ if it requires a login.",
        java=ABSENT,
    )
    providers: Providers = field(default=DEFAULT_PROVIDERS)

    def __repr__(self) -> str:
        # A token provider is a user's object, whose repr may expose secrets.
        shown = {
            name: value if isinstance(value, str | int | float | Secret) else type(value) for name, value in self.given().items()
        }
        return f"SecurityConfig({shown})"

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def settings(self) -> dict[str, object]:
        """Returns every option's value by name. Secrets are `Secret` objects."""
        return {name: getattr(self, field_name) for name, field_name in FIELD_OF.items()}

    def given(self) -> dict[str, object]:
        """Returns the values that differ from the defaults, by option name."""
        return {name: value for name, value in self.settings().items() if value != SECURITY_OPTIONS[name].default}


SECURITY_OPTIONS: Mapping[str, Option] = {
    each.metadata["option"].name: each.metadata["option"] for each in fields(SecurityConfig) if each.metadata
}
FIELD_OF: Mapping[str, str] = {each.metadata["option"].name: each.name for each in fields(SecurityConfig) if each.metadata}

PLAINTEXT = SecurityConfig()
