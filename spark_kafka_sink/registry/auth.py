"""The headers that identify a client to a registry: a user and a password, a fixed token, or a token for client credentials."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.registry_options import (
    BEARER_SOURCE,
    CLIENT_ID,
    CLIENT_SECRET,
    CONNECT_S,
    IDENTITY_POOL,
    ISSUER,
    ISSUER_CA,
    LOGICAL_CLUSTER,
    SCOPE,
    STATIC_TOKEN,
    TOKEN,
    URL,
    USER_INFO,
    RegistryConfig,
    bearer_source,
)
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.security.http import HttpTimeouts, basic
from spark_kafka_sink.security.sasl.oidc import OidcTokens, TokenEndpoint
from spark_kafka_sink.security.sasl.token_cache import Refresh, Token

_REFRESH: Final = Refresh(window_factor=0.8, window_jitter=0.0, min_period_s=0.0, buffer_s=0.0)
"""confluent-kafka renews a token after 80 % of its life."""
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Login:
    """The headers of one request.

    Attributes:
        secrets: texts that no error may show. Errors then quote nothing of a response but its status and a known code.
        is_kept: whether they hold a token of an earlier request.
    """

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    is_kept: bool = False


class Credentials(ABC):
    """Makes the headers of each request. Any thread may call it."""

    @abstractmethod
    def login(self, url_user: tuple[str, str] | None, left_s: float) -> Login:
        """Returns the headers of a request.

        Args:
            url_user: the user and the password of the URL; None if it has none.
            left_s: how long it may wait for a token, in s.

        Raises:
            OptionError: A reference cannot be resolved, or a value is not allowed in an HTTP header.
            AuthenticationError: The token endpoint gave no token.
        """

    def refused(self, login: Login) -> bool:
        """Returns whether another login may succeed after a registry refused one."""
        return False


def credentials(config: RegistryConfig, clock: Callable[[], float] = time.time) -> Credentials:
    """Returns the credentials of the options. clock: seconds since the epoch."""
    source = bearer_source(config)
    if source is None:
        return BasicCredentials(config.basic_auth_user_info)
    if source == STATIC_TOKEN:
        assert config.bearer_auth_token is not None
        return FixedToken(config, config.bearer_auth_token)
    return ClientCredentials(config, clock)


class BasicCredentials(Credentials):
    """A user and a password, from the options or from the URL; or neither."""

    def __init__(self, user_info: Secret | None) -> None:
        self._user_info = user_info

    def login(self, url_user: tuple[str, str] | None, left_s: float) -> Login:
        pair = url_user
        if self._user_info is not None:
            user, colon, password = revealed(self._user_info, USER_INFO).partition(":")
            if not colon:
                raise OptionError(f"option {USER_INFO}: the value of its reference must be user:password", option=USER_INFO)
            pair = user, password
        if pair is None:
            return Login()
        header = basic(*pair)
        return Login({"Authorization": header}, (pair[1], header.removeprefix("Basic ")))


class FixedToken(Credentials):
    """A token of the options. Its reference is resolved for each request."""

    def __init__(self, config: RegistryConfig, token: Secret) -> None:
        self._config = config
        self._token = token

    def login(self, url_user: tuple[str, str] | None, left_s: float) -> Login:
        _check_no_user(url_user)
        return _bearer(self._config, revealed(self._token, TOKEN).strip(), TOKEN)


class ClientCredentials(Credentials):
    """A token of an OIDC provider, which is renewed after 80 % of its life, or when the registry refuses it.

    Two threads may fetch a token at a time: each gets a valid one, and the later one is kept.
    """

    def __init__(self, config: RegistryConfig, clock: Callable[[], float]) -> None:
        """Raises OptionError if the URL of the token endpoint is not valid."""
        self._config = config
        self._clock = clock
        self._source(config.request_timeout_ms / 1000)
        self._kept: tuple[Token, float] | None = None

    def login(self, url_user: tuple[str, str] | None, left_s: float) -> Login:
        _check_no_user(url_user)
        kept = self._kept
        is_kept = kept is not None and self._clock() < kept[1]
        if kept is None or not is_kept:
            token, now = self._source(left_s)(""), self._clock()
            kept = self._kept = token, _REFRESH.renew_at(now, token.expires_at, 0.0)
        secret = self._config.bearer_auth_client_secret
        assert secret is not None
        login = _bearer(self._config, kept[0].value.reveal(), ISSUER)
        return Login(login.headers, (*login.secrets, revealed(secret, CLIENT_SECRET)), is_kept)

    def refused(self, login: Login) -> bool:
        """Forgets the token, which may have been revoked. If a new one is refused as well, a right is missing."""
        self._kept = None
        return login.is_kept

    def _source(self, left_s: float) -> OidcTokens:
        """Reads the options for each token: a client id may be replaced together with its secret."""
        config = self._config
        assert config.bearer_auth_client_secret is not None
        secret = revealed(config.bearer_auth_client_secret, CLIENT_SECRET)
        limit_s = min(config.request_timeout_ms / 1000, left_s)
        endpoint = TokenEndpoint(
            url=_resolved(config.bearer_auth_issuer_endpoint_url, ISSUER),
            client_id=_resolved(config.bearer_auth_client_id, CLIENT_ID),
            client_secret=Secret(secret, None),
            scope=_resolved(config.bearer_auth_scope, SCOPE),
            ca_location=_resolved(config.bearer_auth_issuer_ca_location, ISSUER_CA) or None,
            timeouts=HttpTimeouts(min(CONNECT_S, limit_s), limit_s, limit_s),
            backoff_max_ms=min(config.max_retries * config.retries_wait_ms, int(left_s * 1000)),
            url_option=ISSUER,
            ca_option=ISSUER_CA,
        )
        return OidcTokens(endpoint)


def _bearer(config: RegistryConfig, token: str, option: str) -> Login:
    headers = {"Authorization": f"Bearer {_header_value(token, option)}"}
    for name, header, value in (
        (LOGICAL_CLUSTER, "target-sr-cluster", config.bearer_auth_logical_cluster),
        (IDENTITY_POOL, "Confluent-Identity-Pool-Id", config.bearer_auth_identity_pool_id),
    ):
        if value is not None:
            headers[header] = _header_value(_resolved(value, name), name)
    return Login(headers, (token,))


def _header_value(value: str, option: str) -> str:
    # http.client's own error shows the value.
    if not _HEADER_VALUE.fullmatch(value):
        what = "the token of" if option in (TOKEN, ISSUER) else "the value of"
        raise OptionError(
            f"option {option}: {what} this option is empty or has a character that is not allowed in an HTTP header",
            option=option,
        )
    return value


def revealed(secret: Secret | str, option: str) -> str:
    """Returns the text of an option. Raises OptionError, which names the option, if a reference cannot be resolved."""
    try:
        return resolve(secret) if isinstance(secret, str) else secret.reveal()
    except OptionError as error:
        raise OptionError(f"option {option}: {error.message}", **{**error.facts, "option": option}) from None


def _resolved(value: str | None, option: str) -> str:
    """Returns the text of an option; empty if it is not set. An empty variable must not mean that it is not set."""
    if value is None:
        return ""
    text = revealed(value, option).strip()
    if not text:
        raise OptionError(f"option {option}: its reference resolves to an empty value", option=option)
    return text


def _check_no_user(url_user: tuple[str, str] | None) -> None:
    if url_user is not None:
        text = f"option {BEARER_SOURCE}: a token cannot be combined with a user in {URL}; set one or the other"
        raise OptionError(text, option=BEARER_SOURCE)
