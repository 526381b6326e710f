"""Sources of OAUTHBEARER tokens by options: a text, a file, an OIDC provider, or a Python callable."""

from __future__ import annotations

import importlib
import logging
import math
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret, has_references, resolve
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.credentials import jaas_of
from spark_kafka_sink.security.http import HttpTimeouts
from spark_kafka_sink.security.sasl.oauthbearer import OAuthBearerMechanism, Tokens, seconds, unsigned_jwt, wrong_extension
from spark_kafka_sink.security.sasl.oidc import ENDPOINT, OidcTokens, TokenEndpoint, TokenFile, token_of
from spark_kafka_sink.security.sasl.token_cache import Refresh, SharedTokens, Token, TokenCache, TokenSource

logger = logging.getLogger(__name__)

PROVIDER: Final = "sasl.oauthbearer.token.provider"

CLOUDS: Final[Mapping[str, bool]] = {"azure": True, "google": False, "aws": False}
"""The providers in cloud_tokens.py, and whether each makes a separate token for each host."""
RESULT: Final = "a JWT, or a pair of a token and its expiry in seconds since 1970"
"""What a provider must return. It is called with a broker's host name."""
_UNSECURED: Final = "unsecuredLogin"
_EXTENSION: Final = "extension_"
_UNSECURED_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_UNSECURED_EXTENSION: Final = "unsecuredLoginExtension_"


class ImmediateTokens:
    """Tokens that are fast to make, so they are made for each login in the client's thread."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def get(self, host: str, user: object, wakeup: Callable[[], None]) -> Token:
        try:
            token = self._source(host)
        except OptionError as error:  # a reference that can no longer be resolved
            raise AuthenticationError(error.message) from None
        if token.expires_at <= time.time():
            raise AuthenticationError("the token of sasl.oauthbearer.token has expired and is not renewed")
        return token

    def refused(self, host: str, token: Token) -> None:
        pass

    def leave(self, user: object) -> None:
        pass


def oauthbearer_mechanism(config: SecurityConfig, wakeup: Callable[[], None]) -> OAuthBearerMechanism:
    """Returns the OAUTHBEARER mechanism with the settings. See `open_mechanism`."""
    return OAuthBearerMechanism(open_tokens(config), extensions_of(config), wakeup)


def open_tokens(config: SecurityConfig) -> Callable[[], Tokens]:
    """Returns a function that returns this process's tokens. Raises OptionError if there is no valid source."""
    jaas = _jaas_options(config)
    if config.sasl_oauthbearer_token is not None:
        static = config.sasl_oauthbearer_token
        return _immediate(lambda _: token_of(static.reveal().strip(), _subject_claim(config)))
    if config.sasl_oauthbearer_token_provider is not None:
        source, is_per_host = _provider(config)
    elif config.sasl_oauthbearer_token_endpoint_url is not None:
        _endpoint(config)  # raises for its wrong options now
        _warn_without_tls(config.sasl_oauthbearer_token_endpoint_url)
        # The options are read for each token: a client id may be rotated together with its secret.
        source, is_per_host = lambda host: _endpoint(config)(host), False  # noqa: PLW0108
    elif any(name.startswith(_UNSECURED) for name in jaas):
        _unsecured_token(jaas)  # raises for its wrong options now
        logger.warning("the token is unsecured: only test brokers accept it. Set %s to get a real one", ENDPOINT)
        return _immediate(lambda _: _unsecured_token(jaas))
    else:
        ways = f"sasl.oauthbearer.token, {PROVIDER} or {ENDPOINT}"
        raise OptionError(f"option sasl.mechanism: OAUTHBEARER requires a token: set {ways}", option="sasl.mechanism")

    def make() -> TokenCache:
        return TokenCache(source, refresh_of(config), is_per_host=is_per_host, deadline_s=_deadline_s(config))

    shared = SharedTokens(_settings(config), make)
    return lambda: shared.cache


def extensions_of(config: SecurityConfig) -> dict[str, str]:
    """Returns the SASL extensions of the options. Raises OptionError for one that Kafka does not accept."""
    option = "sasl.oauthbearer.extensions"
    found = {}
    for part in filter(None, (each.strip() for each in resolve(config.sasl_oauthbearer_extensions or "").split(","))):
        name, sign, value = part.partition("=")
        if not sign:
            raise OptionError(f"option {option}: must be a comma-separated list of name=value", option=option)
        found[name.strip()] = value.strip()
    for prefix in (_EXTENSION, _UNSECURED_EXTENSION):
        given = {name.removeprefix(prefix): value for name, value in _jaas_options(config).items() if name.startswith(prefix)}
        found |= given
    if (wrong := wrong_extension(found)) is not None:
        raise OptionError(f"option {option}: {wrong}", option=option)
    return found


def refresh_of(config: SecurityConfig) -> Refresh:
    """Returns when to renew tokens."""
    return Refresh(
        window_factor=config.sasl_login_refresh_window_factor,
        window_jitter=config.sasl_login_refresh_window_jitter,
        min_period_s=config.sasl_login_refresh_min_period_seconds,
        buffer_s=config.sasl_login_refresh_buffer_seconds,
    )


def _immediate(source: TokenSource) -> Callable[[], Tokens]:
    tokens = ImmediateTokens(source)
    return lambda: tokens


def _jaas_options(config: SecurityConfig) -> Mapping[str, str]:
    jaas = jaas_of(config)
    return {} if jaas is None else jaas.options


def _subject_claim(config: SecurityConfig) -> str:
    return str(config.settings().get("sasl.oauthbearer.sub.claim.name") or "sub")


def _settings(config: SecurityConfig) -> Hashable:
    """Returns the settings that distinguish tokens. Callables are compared by identity."""
    settings = {name: value for name, value in config.settings().items() if name.startswith("sasl.")}
    provider = settings.get(PROVIDER)
    if provider is not None and not isinstance(provider, str):
        settings[PROVIDER] = id(provider)  # the cache keeps the callable, so no other one gets its id
    return config.providers, *settings.items()


def _deadline_s(config: SecurityConfig) -> float:
    """Returns the time limit of a source: the longest time of OidcTokens with these options, and 5 s for the name lookup."""
    waits_ms = config.sasl_login_connect_timeout_ms + config.sasl_login_read_timeout_ms + config.sasl_login_retry_backoff_max_ms
    return waits_ms / 1000 + 5


# An OIDC provider, or a file


def _warn_without_tls(url: str) -> None:
    """Warns if a resolved URL is not https; `security_warnings` warns of a URL that is not a reference."""
    if has_references(url) and resolve(url).strip().lower().startswith("http://"):
        logger.warning("%s begins with http://: the client secret is sent unencrypted; use https://", ENDPOINT)


def _endpoint(config: SecurityConfig) -> TokenSource:
    jaas = _jaas_options(config)
    url = resolve(config.sasl_oauthbearer_token_endpoint_url or "").strip()
    if url.lower().startswith("file:"):
        return TokenFile(_path_of(url), _subject_claim(config))
    # separate options, or a login line that is a reference as a whole
    given_id, given_scope = config.sasl_oauthbearer_client_credentials_client_id, config.sasl_oauthbearer_scope
    # Values of the login line are already resolved and are not searched for references.
    client_id = jaas.get("clientId") if given_id is None else resolve(given_id)
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    if secret is None and jaas.get("clientSecret"):
        secret = Secret(jaas["clientSecret"], None)
    for name, value in (("client.id", client_id), ("client.secret", secret)):
        if value is None:
            option = f"sasl.oauthbearer.client.credentials.{name}"
            raise OptionError(f"option {option}: it is not set, but the token endpoint requires it", option=option)
    assert client_id is not None
    assert secret is not None
    ca_location = config.sasl_oauthbearer_ca_location
    if ca_location is not None:
        ca_location = resolve(ca_location)
        if not ca_location:
            option = "sasl.oauthbearer.ca.location"
            raise OptionError(f"option {option}: its reference resolves to an empty value", option=option)
    endpoint = TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=jaas.get("scope", "") if given_scope is None else resolve(given_scope),
        encodes_header=config.sasl_oauthbearer_header_urlencode,
        ca_location=ca_location,
        timeouts=HttpTimeouts(config.sasl_login_connect_timeout_ms / 1000, config.sasl_login_read_timeout_ms / 1000),
        backoff_ms=config.sasl_login_retry_backoff_ms,
        backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
        subject_claim=_subject_claim(config),
    )
    return OidcTokens(endpoint)


def _path_of(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    path = urllib.request.url2pathname(parts.path)
    if parts.netloc not in ("", "localhost") or not path:
        raise OptionError(f"option {ENDPOINT}: a file URL must be file:///path", option=ENDPOINT)
    return path


# A Python callable


def _provider(config: SecurityConfig) -> tuple[TokenSource, bool]:
    """Returns the source, and whether each host has its own token."""
    given = config.sasl_oauthbearer_token_provider
    if isinstance(given, str) and given.lower() in CLOUDS:
        clouds = importlib.import_module("spark_kafka_sink.security.sasl.cloud_tokens")
        name, call = given.lower(), clouds.token_provider(given.lower(), config)
    else:
        name = given if isinstance(given, str) else getattr(given, "__qualname__", type(given).__qualname__)
        call = _imported(given) if isinstance(given, str) else given
        if not callable(call):
            raise OptionError(f"option {PROVIDER}: {name} is not callable", option=PROVIDER)
    claim = _subject_claim(config)
    return lambda host: token_from(call(host), name, claim), CLOUDS.get(name, True)


def token_from(result: object, name: str, subject_claim: str = "sub") -> Token:
    """Converts a provider's result to a Token. The result may be a Token, a JWT, or a pair of a token and its expiry.

    Args:
        result: The provider's result.
        name: Name of the provider, for errors.
        subject_claim: The claim of a JWT that names the principal.

    Raises:
        AuthenticationError: The result has another type, or is a text without an expiry.
    """
    if isinstance(result, Token):
        return result
    value, expires_at = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if isinstance(value, Secret):
        value = value.reveal()
    if not isinstance(value, str):
        raise AuthenticationError(f"the token provider {name} returned {type(result).__name__}; it must return {RESULT}")
    token = token_of(value.strip(), subject_claim)
    given = seconds(expires_at)
    if given is None and expires_at is not None:
        raise AuthenticationError(f"the token provider {name} returned an expiry that is not a number of seconds since 1970")
    if given is not None:
        return Token(token.value, given, token.principal)
    if math.isinf(token.expires_at):
        text = f"the token provider {name} returned a token without an expiry"
        raise AuthenticationError(f"{text}; it must return a pair of the token and its expiry in seconds since 1970")
    return token


def _imported(dotted: str) -> Any:
    """Imports the object of a name such as `package.module.function` or `package.module:function`."""
    module_name, _, name = dotted.replace(":", ".").rpartition(".")
    if not module_name:
        known = ", ".join(CLOUDS)
        raise OptionError(
            f"option {PROVIDER}: {dotted} is neither one of {known} nor a dotted name such as module.function", option=PROVIDER
        )
    try:
        return getattr(importlib.import_module(module_name), name)
    except AttributeError:
        raise OptionError(f"option {PROVIDER}: module {module_name} has no {name}", option=PROVIDER) from None
    except Exception as error:
        text = f"option {PROVIDER}: module {module_name} cannot be imported: {type(error).__name__}: {error}"
        raise OptionError(text, option=PROVIDER) from error


# Java's OAuthBearerUnsecuredLoginCallbackHandler, for tests


def _unsecured_token(jaas: Mapping[str, str]) -> Token:
    """Returns an unsigned JWT that is valid for an hour. Raises OptionError for an invalid option."""
    principal = jaas.get(_UNSECURED_SUBJECT)
    others = {name for name in jaas if name.startswith(_UNSECURED) and not name.startswith(_UNSECURED_EXTENSION)}
    if not principal or others != {_UNSECURED_SUBJECT}:
        option = "sasl.jaas.config"
        raise OptionError(f"option {option}: an unsecured token takes {_UNSECURED_SUBJECT} and nothing else", option=option)
    now = time.time()
    return Token(Secret(unsigned_jwt({"exp": now + 3600, "iat": now, "sub": principal})), now + 3600, principal)
