"""All options of the schema registry's client, under the names of confluent-kafka and Java's client.

The fields of `RegistryConfig` are the table, like those of `ProducerConfig`. TLS has the names of the brokers' TLS options after
`schema.registry.`, and the same meaning.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NoReturn

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import ABSENT, REQUIRED, Kind, Option, declared, integer, nearest, one_name_of
from spark_kafka_sink.options.schema_options import REGISTRY_PREFIX
from spark_kafka_sink.options.secret import DEFAULT_PROVIDERS, Providers, Secret, has_references, is_provider_option, providers_of
from spark_kafka_sink.options.security_config import ALIASES, SECURITY_OPTIONS, SecurityConfig, read_option, security_config
from spark_kafka_sink.options.security_options import LATER, SECRET

PREFIX: Final = REGISTRY_PREFIX
URL: Final = f"{PREFIX}url"
USER_INFO: Final = f"{PREFIX}basic.auth.user.info"
BASIC_SOURCE: Final = f"{PREFIX}basic.auth.credentials.source"
BEARER_SOURCE: Final = f"{PREFIX}bearer.auth.credentials.source"
TOKEN: Final = f"{PREFIX}bearer.auth.token"
ISSUER: Final = f"{PREFIX}bearer.auth.issuer.endpoint.url"
ISSUER_CA: Final = f"{PREFIX}bearer.auth.issuer.ca.location"
CLIENT_ID: Final = f"{PREFIX}bearer.auth.client.id"
CLIENT_SECRET: Final = f"{PREFIX}bearer.auth.client.secret"
SCOPE: Final = f"{PREFIX}bearer.auth.scope"
LOGICAL_CLUSTER: Final = f"{PREFIX}bearer.auth.logical.cluster"
IDENTITY_POOL: Final = f"{PREFIX}bearer.auth.identity.pool.id"
PROXY: Final = f"{PREFIX}proxy"

CONNECT_S: Final = 10.0
"""Maximum time to connect, in s. It is shorter if `request_timeout_ms` is."""

STATIC_TOKEN: Final = "STATIC_TOKEN"
OAUTHBEARER: Final = "OAUTHBEARER"
_REFUSED_SOURCES: Final[Mapping[str, str]] = {
    "SASL_INHERIT": f"it is not supported: set {USER_INFO}",
    "OAUTHBEARER_AZURE_IMDS": f"it is not supported: set {TOKEN}, or {ISSUER} of your Entra tenant",
    "SASL_OAUTHBEARER_INHERIT": f"it is not supported: set {ISSUER}",
    "CUSTOM": f"it is not supported: set {TOKEN} to a reference that your own program updates, such as ${{file:/path:name}}",
}
_NO_TLS_OPTIONS: Final = SecurityConfig(security_protocol="SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """The settings of a schema registry's client, validated by `registry_config()`. Immutable and hashable.

    Values may contain references such as `${env:NAME}`, which are resolved when a client is made. `repr` shows no secret.
    """

    url: Secret = declared(
        URL,
        Kind("one or more URLs", SECRET.read, is_secret=True, keeps_references=True),
        REQUIRED,
        "URL of the schema registry, or a comma-separated list of URLs of the same registry. If a request to one fails, the next "
        "one is tried.",
    )
    basic_auth_credentials_source: str | None = declared(
        BASIC_SOURCE,
        one_name_of("USER_INFO", "URL"),
        None,
        "Where user and password are: USER_INFO (basic.auth.user.info) or URL. By default whichever is set is used.",
        java="URL",
        differs="Java also has SASL_INHERIT, which raises an error here.",
    )
    basic_auth_user_info: Secret | None = declared(USER_INFO, SECRET, None, "User and password, as user:password.")
    bearer_auth_credentials_source: str | None = declared(
        BEARER_SOURCE,
        one_name_of(STATIC_TOKEN, OAUTHBEARER),
        None,
        "Where the token is from: STATIC_TOKEN (bearer.auth.token) or OAUTHBEARER (client credentials). By default whichever is "
        "set is used.",
        differs="Java and confluent-kafka have more sources, which raise an error here.",
    )
    bearer_auth_token: Secret | None = declared(
        TOKEN, SECRET, None, "A fixed token. A reference is resolved again for each request, so the token may be replaced."
    )
    bearer_auth_issuer_endpoint_url: str | None = declared(
        ISSUER, LATER, None, "URL of the token endpoint of an OIDC provider, for client credentials."
    )
    bearer_auth_client_id: str | None = declared(CLIENT_ID, LATER, None, "Client id for the token endpoint.")
    bearer_auth_client_secret: Secret | None = declared(CLIENT_SECRET, SECRET, None, "Client secret for the token endpoint.")
    bearer_auth_scope: str | None = declared(
        SCOPE, LATER, None, "Scope to request from the token endpoint.", differs="confluent-kafka requires it."
    )
    bearer_auth_issuer_ca_location: str | None = declared(
        ISSUER_CA,
        LATER,
        None,
        "PEM file of authorities to trust for the token endpoint. Defaults to the system's authorities.",
        java=ABSENT,
    )
    bearer_auth_logical_cluster: str | None = declared(
        LOGICAL_CLUSTER,
        LATER,
        None,
        "Logical cluster, such as lsrc-1, which Confluent Cloud requires with a token.",
        differs="confluent-kafka requires it with every registry.",
    )
    bearer_auth_identity_pool_id: str | None = declared(
        IDENTITY_POOL, LATER, None, "Identity pool of Confluent Cloud, or a comma-separated list of pools."
    )
    proxy: Secret | None = declared(
        PROXY,
        SECRET,
        None,
        "HTTP proxy to the registry: http://host:port, with user:password@ if it requires a login. By default the environment's "
        "proxy is used, if there is one.",
        java=ABSENT,
        differs="Java has proxy.host and proxy.port.",
    )
    request_timeout_ms: int = declared(
        f"{PREFIX}request.timeout.ms",
        integer(1),
        30_000,
        f"Time limit of one request, in ms. The limit to connect is {CONNECT_S:g} s or less.",
        java=60_000,
        differs="Java has http.connect.timeout.ms and http.read.timeout.ms. confluent-kafka waits forever by default.",
    )
    max_retries: int = declared(
        f"{PREFIX}max.retries",
        integer(0, 1000),
        3,
        "How often a request is tried again if no URL sends a response, or if they respond with HTTP 408, 429, 500, 502, 503 or "
        "504.",
    )
    retries_wait_ms: int = declared(
        f"{PREFIX}retries.wait.ms",
        integer(0),
        1000,
        "Maximum wait before the first retry, in ms. It doubles with each retry, and the wait is a random part of it.",
    )
    retries_max_wait_ms: int = declared(
        f"{PREFIX}retries.max.wait.ms",
        integer(0),
        20_000,
        "Maximum wait before a retry, in ms. A longer wait that the registry requests (Retry-After) is cut to it.",
        differs="Java and confluent-kafka ignore Retry-After.",
    )
    cache_capacity: int = declared(
        f"{PREFIX}cache.capacity", integer(1), 1000, "Maximum number of schemas that a client keeps by their id."
    )
    tls: SecurityConfig = field(default=_NO_TLS_OPTIONS)
    providers: Providers = field(default=DEFAULT_PROVIDERS, repr=False)


_FIELD_OF: Final[Mapping[str, str]] = {
    each.metadata["option"].name: each.name for each in fields(RegistryConfig) if each.metadata
}
_TLS_NAMES: Final = [name for name in (*SECURITY_OPTIONS, *ALIASES) if name.startswith("ssl.")]
_TLS_NAME: Final = re.compile(rf"(?<![\w./-])(?={'|'.join(map(re.escape, _TLS_NAMES))})")
_TLS_ALIASES: Final = tuple(PREFIX + name for name in ALIASES if name.startswith("ssl."))


def _of_registry(option: Option) -> Option:
    """Returns a TLS option of brokers as one of the registry, whose names are confluent-kafka's and not librdkafka's."""
    doc = re.sub(r" librdkafka: [\w.]+\.", "", option.doc)
    doc = doc.replace("the broker's", "the registry's").replace("librdkafka's", "confluent-kafka's")
    return replace(option, name=PREFIX + option.name, doc=_TLS_NAME.sub(PREFIX, doc))


REGISTRY_OPTIONS: Final[Mapping[str, Option]] = {
    **{each.metadata["option"].name: each.metadata["option"] for each in fields(RegistryConfig) if each.metadata},
    **{PREFIX + name: _of_registry(option) for name, option in SECURITY_OPTIONS.items() if name.startswith("ssl.")},
}
_INSTEAD: Final[Mapping[str, str]] = {
    "cache.latest.ttl.sec": "; the latest version is asked for once per application or producer, so remove the option",
    "http.connect.timeout.ms": f"; use {PREFIX}request.timeout.ms",
    "http.read.timeout.ms": f"; use {PREFIX}request.timeout.ms",
    "proxy.host": f"; use {PROXY}",
    "proxy.port": f"; use {PROXY}",
    "timeout": f"; use {PREFIX}request.timeout.ms, which is in ms",
}
"""What to do about options of other clients."""


def registry_config(options: Mapping[str, object]) -> RegistryConfig:
    """Returns the settings of a registry's client.

    Args:
        options: values by name, for names that `is_registry_option` accepts. Those that begin with config.providers may be among
            them; they say how references such as `${env:NAME}` are resolved.

    Raises:
        OptionError: An option is unknown, a value is invalid, or options contradict each other. The error holds no secret.
    """
    providing = {name: value for name, value in options.items() if is_provider_option(name)}
    providers = providers_of(providing)
    values: dict[str, Any] = {}
    tls: dict[str, object] = dict(providing)
    for given, value in options.items():
        if given in providing:
            continue
        name = given if given.startswith(PREFIX) else PREFIX + given
        if name != given and name in options and options[name] != value:
            _refuse(given, f"{name} has another value; set only one of them")
        if name in _TLS_ALIASES or (name in REGISTRY_OPTIONS and name not in _FIELD_OF):
            tls[name.removeprefix(PREFIX)] = value
        elif name in _FIELD_OF:
            if name in (BASIC_SOURCE, BEARER_SOURCE) and (reason := _REFUSED_SOURCES.get(str(value).strip().upper())):
                _refuse(name, f"{value}: {reason}")  # a source of credentials that other clients have
            values[_FIELD_OF[name]] = read_option(REGISTRY_OPTIONS[name], value, providers)
        else:
            _refuse_unknown(given)
    if "url" not in values:
        _refuse(URL, "it is not set; set it to the address of the schema registry, such as http://localhost:8081")
    config = RegistryConfig(**values, tls=_tls(tls), providers=providers)
    _check(config)
    return config


def _refuse_unknown(name: str) -> NoReturn:
    hint = _INSTEAD.get(name.removeprefix(PREFIX)) or nearest(name, [*REGISTRY_OPTIONS, *_TLS_ALIASES])
    raise OptionError(f"unknown option {name}{hint}", option=name)


def _tls(settings: Mapping[str, object]) -> SecurityConfig:
    try:
        return security_config({"security.protocol": "SSL", **settings})
    except OptionError as error:
        raise with_prefix(error) from None


def with_prefix(error: OptionError) -> OptionError:
    """Returns an error about a TLS option with the registry's name of that option."""
    facts = {name: PREFIX + value if name == "option" else value for name, value in error.facts.items()}
    return OptionError(_TLS_NAME.sub(PREFIX, error.message), **facts)


def _check(config: RegistryConfig) -> None:
    """Raises an error for options that contradict each other. What references hide is checked when a client is made."""
    in_url = False
    if not has_references(config.url.unresolved()):
        in_url = any(url.user_info for url in base_urls(config.url.unresolved(), URL))
    _check_basic(config, in_url=in_url)
    _check_bearer(config, has_basic=in_url or config.basic_auth_user_info is not None)


def _check_basic(config: RegistryConfig, *, in_url: bool) -> None:
    source, info = config.basic_auth_credentials_source, config.basic_auth_user_info
    if info is not None and (in_url or source == "URL"):
        _refuse(USER_INFO, f"it cannot be combined with a user in {URL}; set one or the other")
    if info is not None and not has_references(info.unresolved()) and ":" not in info.unresolved():
        _refuse(USER_INFO, "the value must be user:password")
    if source == "USER_INFO" and info is None:
        _refuse(BASIC_SOURCE, f"USER_INFO requires {USER_INFO}")
    if source == "URL" and not in_url and not has_references(config.url.unresolved()):
        _refuse(BASIC_SOURCE, f"URL requires a user and a password in {URL}, as https://user:password@host")


def _check_bearer(config: RegistryConfig, *, has_basic: bool) -> None:
    source = bearer_source(config)
    if source is None:
        for name in (CLIENT_ID, CLIENT_SECRET):
            if getattr(config, _FIELD_OF[name]) is not None:
                _refuse(name, f"it requires {ISSUER}")
        return
    if has_basic:
        _refuse(BEARER_SOURCE, "a token cannot be combined with a user and a password; set one or the other")
    needed = (TOKEN,) if source == STATIC_TOKEN else (ISSUER, CLIENT_ID, CLIENT_SECRET)
    for name in needed:
        if getattr(config, _FIELD_OF[name]) is None:
            _refuse(name, f"it is not set, but {BEARER_SOURCE}={source} requires it")
    issuer = config.bearer_auth_issuer_endpoint_url
    if issuer is not None and "@" in issuer and not has_references(issuer):
        _refuse(ISSUER, f"a user in the URL is not supported; set {CLIENT_ID} and {CLIENT_SECRET}")
    other = ISSUER if source == STATIC_TOKEN else TOKEN
    if getattr(config, _FIELD_OF[other]) is not None:
        _refuse(other, f"it cannot be combined with {needed[0]}; set one or the other")


def bearer_source(config: RegistryConfig) -> str | None:
    """Returns where the token is from: STATIC_TOKEN or OAUTHBEARER; None without a token."""
    if config.bearer_auth_credentials_source is not None:
        return config.bearer_auth_credentials_source
    if config.bearer_auth_token is not None:
        return STATIC_TOKEN
    return OAUTHBEARER if config.bearer_auth_issuer_endpoint_url is not None else None


_NOT_IN_A_URL = re.compile(r"[^\x21-\x7e]")


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A registry's address.

    Attributes:
        url: scheme, host, port and path, without a slash at its end and without user and password.
        user_info: user and password; None if the URL has none.
    """

    url: str
    user_info: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def is_encrypted(self) -> bool:
        return self.url.startswith("https:")


def base_urls(text: str, option: str) -> tuple[BaseUrl, ...]:
    """Parses a comma-separated list of URLs.

    Args:
        text: the list, without references.
        option: its option, for errors.

    Raises:
        OptionError: One of them is not a valid http or https URL. The error shows no URL with a user.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        _refuse(option, "the value must be one or more URLs, separated by commas")
    # A password may contain a comma, so its second half could look like a URL without a user.
    hides = "@" in text
    return tuple(_parsed(part, option, "a URL" if hides else repr(part)) for part in parts)


def _parsed(text: str, option: str, shown: str) -> BaseUrl:
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        _refuse(option, f"{shown} is not a valid URL")
    if parts.scheme not in ("http", "https"):
        # It may be a password that was set for the wrong option.
        _refuse(option, "each URL must begin with https:// or http://")
    if not host or port == 0 or _NOT_IN_A_URL.search(text):
        _refuse(option, f"{shown} is not a valid URL; write https://host:port with special characters percent-encoded")
    if parts.query or parts.fragment:
        _refuse(option, f"{shown} has a query or a fragment; remove it")
    user_info = None
    if parts.username is not None:
        if parts.password is None:
            _refuse(option, f"{shown} has a user without a password; write https://user:password@host")
        user_info = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password)
    place = parts.netloc.rpartition("@")[2]
    return BaseUrl(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", user_info)


def _refuse(option: str, text: str) -> NoReturn:
    raise OptionError(f"option {option}: {text}", option=option) from None
