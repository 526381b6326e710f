"""Tokens from an OIDC provider, by client credentials (RFC 6749), or from a file that another program updates.

The rules are those of Kafka's HttpAccessTokenRetriever, FileTokenRetriever and LoginAccessTokenValidator.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.security.http import MAX_ANSWER_BYTES, HttpAnswer, HttpRequest, HttpTimeouts, basic, send, why
from spark_kafka_sink.security.sasl.oauthbearer import claims_of, expiry, seconds
from spark_kafka_sink.security.sasl.token_cache import Token

logger = logging.getLogger(__name__)

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"

# Kafka's HttpAccessTokenRetriever.UNRETRYABLE_HTTP_CODES, and redirects, which are not followed here.
_UNRETRIABLE: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
_REDIRECTIONS: Final = range(300, 400)
# RFC 6749, 5.2 and 4.1.2.1; RFC 8628; RFC 8707.
_ERRORS: Final = frozenset(
    {
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
        *("invalid_scope", "access_denied", "server_error", "temporarily_unavailable", "slow_down", "invalid_target"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """The endpoint that exchanges client credentials for a token.

    Attributes:
        url: An http or https URL.
        client_id: The client id.
        client_secret: The client secret, resolved for each request.
        scope: The scope to request; empty for the provider's default.
        encodes_header: sasl.oauthbearer.header.urlencode, which RFC 6749 requires and Kafka disables by default.
        ca_location: PEM file of authorities to trust; None for the system's.
        timeouts: Time limits of one request.
        backoff_ms: The first pause, which doubles, in ms.
        backoff_max_ms: How long to retry, in ms. Its name in Kafka suggests something else (Retry.execute).
        subject_claim: The claim that names the principal.
        url_option: Name of the option that sets `url`, for errors.
        ca_option: Name of the option that sets `ca_location`, for errors.
    """

    url: str
    client_id: str
    client_secret: Secret
    scope: str = ""
    encodes_header: bool = False
    ca_location: str | None = None
    timeouts: HttpTimeouts = field(default=HttpTimeouts(10, 10))  # immutable
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    subject_claim: str = "sub"
    url_option: str = ENDPOINT
    ca_option: str = "sasl.oauthbearer.ca.location"


class _RetriableError(Exception):
    """A request failed, but a retry may succeed."""


class OidcTokens:
    """Fetches tokens from an endpoint. Stateless: any thread may call it, and waits."""

    def __init__(
        self, endpoint: TokenEndpoint, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises OptionError if the URL is not valid."""
        self._endpoint = endpoint
        self._shown = _checked_url(endpoint.url, endpoint.url_option)
        self._sleep = sleep
        self._clock = clock

    def __call__(self, host: str) -> Token:
        """Returns a new token, retrying as Kafka does. Raises AuthenticationError with the endpoint's message."""
        end, pause_s, tries = self._clock() + self._endpoint.backoff_max_ms / 1000, self._endpoint.backoff_ms / 1000, 1
        while True:
            try:
                return self._request()
            except _RetriableError as error:
                left = end - self._clock()
                if left <= 0 or pause_s <= 0:
                    raise AuthenticationError(f"{error} ({tries} tries)" if tries > 1 else str(error)) from None
                logger.debug("retrying the token endpoint in %.1f s: %s", pause_s, error)
                self._sleep(min(pause_s, left))
                pause_s, tries = pause_s * 2, tries + 1

    def _request(self) -> Token:
        endpoint = self._endpoint
        client_id, secret = endpoint.client_id.strip(), endpoint.client_secret.reveal().strip()
        if endpoint.encodes_header:
            client_id, secret = urllib.parse.quote_plus(client_id), urllib.parse.quote_plus(secret)
        headers = {
            "Accept": "application/json",
            "Authorization": basic(client_id, secret),
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        asked_at = time.time()
        try:
            request = HttpRequest("POST", endpoint.url, headers, _body(endpoint.scope))
            answer = send(request, endpoint.timeouts, self._tls())
        except ssl.SSLCertVerificationError as error:
            text = f"the certificate of the token endpoint {self._shown} is not trusted: {error.verify_message}"
            raise AuthenticationError(f"{text}. Set {endpoint.ca_option} to the authority that signed it") from None
        except TimeoutError:
            raise _RetriableError(f"timed out waiting for the token endpoint {self._shown}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _RetriableError(f"the token endpoint {self._shown} sent no valid HTTP response: {why(error)}") from None
        return self._token(answer, asked_at)

    def _tls(self) -> ssl.SSLContext | None:
        """Reads the authorities again, because their file may have been replaced."""
        if not self._endpoint.url.lower().startswith("https:"):
            return None
        location = self._endpoint.ca_location
        try:
            folder = location is not None and Path(location).is_dir()
            context = ssl.create_default_context(cafile=None if folder else location, capath=location if folder else None)
        except OSError as error:
            text = f"{self._endpoint.ca_option}: {location} is not a readable PEM file of certificates"
            raise AuthenticationError(f"{text}: {error.strerror or error}") from None
        # Python 3.13 and newer refuse certificates without an Authority Key Identifier. Java, and the TLS to brokers, do not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _token(self, answer: HttpAnswer, asked_at: float) -> Token:
        """Returns the token of a response. Errors quote only a known code of it, because an endpoint may repeat the secret."""
        if answer.status in _REDIRECTIONS:
            raise AuthenticationError(
                f"the token endpoint {self._shown} redirects (HTTP {answer.status}), which is not followed because the request "
                f"holds the client secret. Set {self._endpoint.url_option} to the right URL"
            )
        try:
            fields: Any = json.loads(answer.body)
        except (ValueError, RecursionError):
            fields = None
        error = fields.get("error") if isinstance(fields, dict) else None
        code = f": {error}" if isinstance(error, str) and error in _ERRORS else ""
        if answer.status not in (200, 201):
            text = f"the token endpoint {self._shown} returned HTTP {answer.status}{code}"
            raise AuthenticationError(text) if answer.status in _UNRETRIABLE else _RetriableError(text)
        if fields is None:
            raise _RetriableError(f"the response of the token endpoint {self._shown} is not JSON")
        value = fields.get("access_token") if isinstance(fields, dict) else None
        if not isinstance(value, str) or not value.strip():
            raise AuthenticationError(f"the response of the token endpoint {self._shown} has no access_token{code}")
        return token_of(value.strip(), self._endpoint.subject_claim, asked_at, fields.get("expires_in"))


class TokenFile:
    """Reads a token from a file at each renewal. Kafka's FileTokenRetriever reads it once."""

    def __init__(self, path: str, subject_claim: str = "sub") -> None:
        self._path = Path(path)
        self._subject_claim = subject_claim

    def __call__(self, host: str) -> Token:
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_ANSWER_BYTES + 1)
        except OSError as error:
            raise AuthenticationError(f"the token file {self._path} cannot be read: {error.strerror}") from None
        if len(data) > MAX_ANSWER_BYTES:
            raise AuthenticationError(f"the token file {self._path} has more than {MAX_ANSWER_BYTES:,} bytes")
        value = data.decode(errors="replace").strip()
        if not value:
            raise AuthenticationError(f"the token file {self._path} is empty")
        return token_of(value, self._subject_claim)


def token_of(value: str, subject_claim: str, asked_at: float = 0.0, expires_in: object = None) -> Token:
    """Returns a token with its claims. It expires at `exp`, or else after the endpoint's `expires_in`, or else never."""
    claims = claims_of(value) or {}
    subject = claims.get(subject_claim)
    lifetime_s = seconds(expires_in)
    expires_at = expiry(claims)
    if expires_at is None:
        expires_at = math.inf if lifetime_s is None else asked_at + lifetime_s
    return Token(Secret(value), expires_at, subject if isinstance(subject, str) else "")


def _checked_url(url: str, option: str) -> str:
    """Returns a URL as errors show it. Raises OptionError if it is not an http or https URL."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, has_user = parts.hostname, parts.username is not None
        _ = parts.port
    except ValueError:
        raise OptionError(f"option {option}: the value is not a valid URL", option=option) from None
    if has_user:
        raise OptionError(f"option {option}: a user in the URL is not supported; set the client id and secret", option=option)
    if parts.scheme.lower() not in ("http", "https") or not host:
        raise OptionError(f"option {option}: the value must be an http, https or file URL", option=option)
    return quoted(f"{parts.scheme}://{parts.netloc}{parts.path}")


def _body(scope: str) -> bytes:
    fields = {"grant_type": "client_credentials"}
    if scope.strip():
        fields["scope"] = scope.strip()
    return urllib.parse.urlencode(fields).encode()
