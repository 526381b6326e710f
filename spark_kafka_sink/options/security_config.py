"""Reads the security options: resolves aliases, rejects unsupported values and checks combinations.

`security_options.py` has the table of options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.jaas import JaasConfig, parse_jaas
from spark_kafka_sink.options.option import UNSECURED, Option
from spark_kafka_sink.options.secret import (
    DEFAULT_PROVIDERS,
    Providers,
    Secret,
    TextWithReferences,
    has_references,
    is_provider_option,
    is_reference,
    providers_of,
    resolve,
)
from spark_kafka_sink.options.security_options import FIELD_OF, PLAINTEXT, SECURITY_OPTIONS, SecurityConfig

__all__ = [
    "ALIASES",
    "ONE_VALUE",
    "PLAINTEXT",
    "SECURITY_NAMES",
    "SECURITY_OPTIONS",
    "SecurityConfig",
    "is_security_option",
    "read_option",
    "security_config",
    "security_warnings",
]

ALIASES: Final[Mapping[str, str]] = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "https.ca.location": "sasl.oauthbearer.ca.location",
}
"""librdkafka names for options with a different name here."""


class OneValue(NamedTuple):
    """The supported values of an option, and why no other is supported. Class names are compared without their package."""

    accepted: tuple[str, ...]
    reason: str


ONE_VALUE: Final[Mapping[str, OneValue]] = {
    "enable.ssl.certificate.verification": OneValue(
        ("true",), "certificates are always verified: set ssl.ca.location to the authority that signed the broker's certificate"
    ),
    "sasl.oauthbearer.method": OneValue(
        ("oidc",), "other methods are not supported: set sasl.oauthbearer.token or sasl.oauthbearer.token.provider"
    ),
    "sasl.oauthbearer.grant.type": OneValue(
        ("client_credentials",), "other grants are not supported: set sasl.oauthbearer.token.provider to a Python callable"
    ),
    "enable.sasl.oauthbearer.unsecure.jwt": OneValue(("false",), UNSECURED),
    "sasl.oauthbearer.jwt.retriever.class": OneValue(
        ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
        "Java classes are not supported: set sasl.oauthbearer.token.provider to a Python callable",
    ),
}
"""Options that are accepted if they request what happens anyway."""

SECURITY_NAMES: Final = (*SECURITY_OPTIONS, *ALIASES, *ONE_VALUE)
"""The names of all options that `security_config` accepts, except those that begin with config.providers."""


def is_security_option(name: str) -> bool:
    return name in SECURITY_OPTIONS or name in ALIASES or name in ONE_VALUE or is_provider_option(name)


def security_config(settings: Mapping[str, object]) -> SecurityConfig:
    """Returns the security settings from Kafka option names.

    Args:
        settings: values by option name, for names that `is_security_option` accepts.

    Raises:
        OptionError: A value is invalid, or options contradict each other. The error holds no secret.
    """
    if not settings:
        return PLAINTEXT
    providers = providers_of(settings)
    values: dict[str, Any] = {}
    for name, value in _by_one_name(settings, providers).items():
        values[FIELD_OF[name]] = read_option(SECURITY_OPTIONS[name], value, providers)
    config = SecurityConfig(**values, providers=providers)
    if config.uses_tls:
        _check_tls(config)
    if not config.uses_sasl:
        return config
    line = config.sasl_jaas_config
    # A single reference may replace the whole line.
    jaas = None if line is None or is_reference(line.unresolved()) else parse_jaas(line.unresolved())
    _check_handlers(config)
    handler = LOGIN_HANDLERS.get(_last_part(config.sasl_login_callback_handler_class))
    chosen = {} if handler is None else {"sasl_oauthbearer_token_provider": handler}
    given = {**_from_jaas(config, jaas), **chosen, **values}
    config = SecurityConfig(**given, providers=providers)
    _check_sasl(config, jaas, "sasl_mechanism" in values)
    return config


def read_option(option: Option, value: object, providers: Providers) -> Any:
    """Returns an option's parsed value. References are resolved now unless the option keeps them. Raises OptionError."""
    if option.kind.keeps_references:
        read = option.parse(value)
        if providers is DEFAULT_PROVIDERS:
            return read
        if isinstance(read, Secret):
            return Secret(read.unresolved(), providers)
        return TextWithReferences(read, providers) if has_references(read) else read
    if not any(
        isinstance(each, str) and has_references(each) for each in (value if isinstance(value, list | tuple) else [value])
    ):
        return option.parse(value)
    try:
        if isinstance(value, str):
            value = resolve(value, providers)
        elif isinstance(value, list | tuple):
            value = [resolve(each, providers) if isinstance(each, str) else each for each in value]
    except OptionError as error:
        raise OptionError(f"option {option.name}: {error.message}", **{**error.facts, "option": option.name}) from None
    try:
        return option.parse(value)
    except OptionError:
        # A resolved reference may be a secret of another option.
        raise OptionError(
            f"option {option.name}: the value of its reference is not {option.kind.wanted}", option=option.name
        ) from None


def _by_one_name(settings: Mapping[str, object], providers: Providers) -> dict[str, object]:
    """Returns the settings with aliases replaced by the names in the table."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        if name in ONE_VALUE:
            try:
                text = resolve(str(value), providers).strip().rpartition(".")[2]
            except OptionError as error:
                raise OptionError(f"option {name}: {error.message}", **{**error.facts, "option": name}) from None
            if text.lower() not in map(str.lower, ONE_VALUE[name].accepted):
                _refuse(name, f"only {' or '.join(ONE_VALUE[name].accepted)} is supported; {ONE_VALUE[name].reason}")
        elif not is_provider_option(name):
            known = ALIASES.get(name, name)
            if known in found and found[known] != value:
                both = [known, *(alias for alias, meant in ALIASES.items() if meant == known)]
                _refuse(name, f"{' and '.join(both)} are two names of one option but have different values")
            found[known] = value
    return found


# TLS


def _check_tls(config: SecurityConfig) -> None:
    given = config.given()
    trusted = [name for name in ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.ca.location") if name in given]
    keys = [name for name in ("ssl.keystore.key", "ssl.keystore.location", "ssl.key.location") if name in given]
    for both in (trusted, keys):
        if len(both) > 1:
            _refuse(both[0], f"{' and '.join(both)} cannot be combined; set only one of them")
    for one, other in (("ssl.keystore.key", "ssl.keystore.certificate.chain"), ("ssl.key.location", "ssl.certificate.location")):
        if one in given and other not in given:
            _refuse(other, f"it is not set, but {one} needs the certificate of that key")
        if other in given and one not in given:
            _refuse(one, f"it is not set, but {other} needs its private key; set it to the same file if that holds both")
    for password, stores in (
        ("ssl.truststore.password", ("ssl.truststore.location", "ssl.truststore.certificates")),
        ("ssl.keystore.password", ("ssl.keystore.location", "ssl.keystore.key")),
        ("ssl.key.password", ("ssl.keystore.location", "ssl.keystore.key", "ssl.key.location")),
    ):
        if password in given and not given.keys() & set(stores):
            _refuse(password, f"it is set, but {stores[0]} is not")
    for kind, text in (("ssl.truststore.type", "ssl.truststore.certificates"), ("ssl.keystore.type", "ssl.keystore.key")):
        if text in given and given.get(kind, "PEM") != "PEM":
            _refuse(kind, f"must be PEM if {text} is set")


# SASL

_AWS: Final = "IAMClientCallbackHandler"
CLIENT_HANDLERS: Final[Mapping[str, str]] = {_AWS: "AWS_MSK_IAM"}
# The token source that each handler selects; None is the token endpoint.
LOGIN_HANDLERS: Final[Mapping[str, str | None]] = {
    "OAuthBearerLoginCallbackHandler": None,
    "JaasClientOauthLoginCallbackHandler": None,  # Strimzi's
    "IAMOAuthBearerLoginCallbackHandler": "aws",
    "GcpLoginCallbackHandler": "google",
}
# Options of OAuthBearerLoginModule: Kafka's (OAuthBearerLoginCallbackHandler) and Strimzi's (ClientConfig).
_JAAS_OPTIONS: Final[Mapping[str, str]] = {
    "clientId": "sasl_oauthbearer_client_credentials_client_id",
    "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
    "scope": "sasl_oauthbearer_scope",
    "oauth.client.id": "sasl_oauthbearer_client_credentials_client_id",
    "oauth.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
    "oauth.scope": "sasl_oauthbearer_scope",
    "oauth.token.endpoint.uri": "sasl_oauthbearer_token_endpoint_url",
    "oauth.access.token": "sasl_oauthbearer_token",
    "oauth.ssl.truststore.location": "sasl_oauthbearer_ca_location",
}
_EXTENSION: Final = "extension_"


def _from_jaas(config: SecurityConfig, jaas: JaasConfig | None) -> dict[str, Any]:
    """Returns what an OAUTHBEARER login line sets, by field. The same settings have their own options."""
    if jaas is None or config.sasl_jaas_config is None or jaas.login_module != "OAuthBearerLoginModule":
        return {}
    found: dict[str, Any] = {}
    for name, value in jaas.options.items():
        if name in _JAAS_OPTIONS:
            field = _JAAS_OPTIONS[name]
            secret = SECURITY_OPTIONS[_OPTION_OF[field]].kind.is_secret
            found[field] = config.sasl_jaas_config.with_text(value) if secret else _with_providers(value, config)
        elif name.startswith("oauth."):
            known = ", ".join(each for each in _JAAS_OPTIONS if each.startswith("oauth."))
            _refuse("sasl.jaas.config", f"only {known} of Strimzi's options are supported")
    pairs = [(name.removeprefix(_EXTENSION), value) for name, value in jaas.options.items() if name.startswith(_EXTENSION)]
    if any("," in value for _, value in pairs):
        _refuse("sasl.jaas.config", "the value of an extension must not contain a comma")
    if pairs:
        found["sasl_oauthbearer_extensions"] = _with_providers(",".join(f"{name}={value}" for name, value in pairs), config)
    return found


_OPTION_OF: Final = {field: name for name, field in FIELD_OF.items()}


def _with_providers(text: str, config: SecurityConfig) -> str:
    return text if config.providers is DEFAULT_PROVIDERS else TextWithReferences(text, config.providers)


def _last_part(name: str | None) -> str:
    return "" if name is None else name.strip().rpartition(".")[2]


def _check_handlers(config: SecurityConfig) -> None:
    client, login = _last_part(config.sasl_client_callback_handler_class), _last_part(config.sasl_login_callback_handler_class)
    for option, name, known in (
        ("sasl.client.callback.handler.class", client, tuple(CLIENT_HANDLERS)),
        ("sasl.login.callback.handler.class", login, tuple(LOGIN_HANDLERS)),
    ):
        if name and name not in known:
            _refuse(
                option,
                f"must be one of {', '.join(known)}, in any package; other Java classes are not supported. Use "
                "OAUTHBEARER with a Python callable as sasl.oauthbearer.token.provider",
            )
    if client and config.sasl_mechanism != CLIENT_HANDLERS[client]:
        _refuse("sasl.client.callback.handler.class", f"{client} requires sasl.mechanism={CLIENT_HANDLERS[client]}")
    if login and config.sasl_mechanism != "OAUTHBEARER":
        _refuse("sasl.login.callback.handler.class", f"{login} requires sasl.mechanism=OAUTHBEARER")


def _check_sasl(config: SecurityConfig, jaas: JaasConfig | None, is_mechanism_given: bool) -> None:
    mechanism = config.sasl_mechanism
    said = (
        f"sasl.mechanism={mechanism}" if is_mechanism_given else f"sasl.mechanism is not set and defaults to {mechanism}, which"
    )
    if jaas is not None and mechanism not in jaas.mechanisms:
        _refuse(
            "sasl.jaas.config",
            f"{jaas.login_module} is for {' or '.join(jaas.mechanisms)}, but {said} requires another login module",
        )
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        _check_password(config, jaas, said)
    elif config.sasl_username is not None or config.sasl_password is not None:
        _refuse("sasl.username", f"{said} uses no user and password: set sasl.mechanism=PLAIN or SCRAM-SHA-512")
    if mechanism == "OAUTHBEARER":
        _check_token(config, said)
    if not is_mechanism_given and jaas is None and config.sasl_jaas_config is None and not config.sasl_kerberos_service_name:
        # Java defaults to GSSAPI and would report what that lacks, but few users want it.
        names = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI"
        _refuse("sasl.mechanism", f"it is not set, but security.protocol={config.security_protocol} requires {names}")


def _check_password(config: SecurityConfig, jaas: JaasConfig | None, said: str) -> None:
    if config.sasl_jaas_config is not None:
        if config.sasl_username is not None or config.sasl_password is not None:
            _refuse("sasl.jaas.config", "it cannot be combined with sasl.username and sasl.password; set one or the other")
        if jaas is not None and not {"username", "password"} <= jaas.options.keys():
            _refuse("sasl.jaas.config", f'{jaas.login_module} requires username="..." and password="..."')
        return
    if config.sasl_username is None or config.sasl_password is None:
        missing = "sasl.username" if config.sasl_username is None else "sasl.password"
        _refuse(missing, f"{said} requires sasl.username and sasl.password, or sasl.jaas.config")


def _check_token(config: SecurityConfig, said: str) -> None:
    ways = {
        "sasl.oauthbearer.token": config.sasl_oauthbearer_token,
        "sasl.oauthbearer.token.provider": config.sasl_oauthbearer_token_provider,
        "sasl.oauthbearer.token.endpoint.url": config.sasl_oauthbearer_token_endpoint_url,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        _refuse(given[0], f"{' and '.join(given)} are different token sources; set only one of them")
    if not given and config.sasl_jaas_config is None:
        _refuse("sasl.mechanism", f"{said} requires one of {', '.join(ways)}")
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None or url.lower().startswith("file:") or has_references(url):
        return
    if not url.lower().startswith(("http://", "https://")):
        _refuse("sasl.oauthbearer.token.endpoint.url", "must begin with https://, http:// or file://")
    if "@" in url.split("/")[2]:
        _refuse(
            "sasl.oauthbearer.token.endpoint.url",
            "must not contain a user and a password; set sasl.oauthbearer.client.credentials.client.id and .client.secret",
        )
    is_in_jaas = config.sasl_jaas_config is not None and is_reference(config.sasl_jaas_config.unresolved())
    for field in ("sasl_oauthbearer_client_credentials_client_id", "sasl_oauthbearer_client_credentials_client_secret"):
        if getattr(config, field) is None and not is_in_jaas:
            _refuse(_OPTION_OF[field], "it is not set, but the token endpoint requires a client id and secret")


def _refuse(option: str, text: str) -> NoReturn:
    raise OptionError(f"option {option}: {text}", option=option)


# Settings that are allowed but unsafe


def security_warnings(config: SecurityConfig) -> tuple[str, ...]:
    """Returns the warnings to log when a client starts with these settings; none without security options.

    `ChannelOpener` itself warns if host names are not verified.
    """
    return () if config == PLAINTEXT else tuple(_warnings(config))


def _warnings(config: SecurityConfig) -> Iterable[str]:
    protocol, given = config.security_protocol, config.given()
    for prefix, used in (("ssl.", config.uses_tls), ("sasl.", config.uses_sasl)):
        unused = [name for name in given if name.startswith(prefix)]
        if unused and not used:
            yield f"security.protocol is {protocol}, so these options are ignored: {', '.join(unused)}"
    if protocol == "SASL_PLAINTEXT":
        sent = {"PLAIN": "the password", "OAUTHBEARER": "the token", "AWS_MSK_IAM": "a signed token"}
        if config.sasl_mechanism in sent:
            yield (
                f"security.protocol=SASL_PLAINTEXT with {config.sasl_mechanism} sends {sent[config.sasl_mechanism]} unencrypted;"
                " use SASL_SSL"
            )
    url = config.sasl_oauthbearer_token_endpoint_url
    if config.uses_sasl and url is not None and url.lower().startswith("http://"):
        yield "sasl.oauthbearer.token.endpoint.url begins with http://: the client secret is sent unencrypted; use https://"
