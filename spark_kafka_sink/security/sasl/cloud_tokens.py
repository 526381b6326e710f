"""OAUTHBEARER tokens from the libraries of cloud providers: azure, google and aws as sasl.oauthbearer.token.provider."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from datetime import UTC
from typing import Any, Final

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.installation import is_installed, not_installed
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl.aws_msk_iam import LIFETIME_S, CredentialsSource, aws_options, encoded, signed_query
from spark_kafka_sink.security.sasl.oauthbearer import claims_of
from spark_kafka_sink.security.sasl.token_cache import Token

OPTION: Final = "sasl.oauthbearer.token.provider"

GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
AWS_USER_AGENT: Final = "spark-kafka-sink"


def token_provider(name: str, config: SecurityConfig) -> Callable[[str], Token]:
    """Returns a function that makes a token for a broker's host. It may wait for the network; one thread at a time calls it.

    Args:
        name: azure, google or aws.

    Raises:
        OptionError: The name is unknown, or the library is not installed.
    """
    match name:
        case "azure":
            _check_installed("azure.identity")
            scope = resolve(config.sasl_oauthbearer_scope) if config.sasl_oauthbearer_scope else None
            return AzureTokens(scope)
        case "google":
            _check_installed("google.auth")
            _check_installed("requests")
            return GoogleTokens()
        case "aws":
            _check_installed("botocore")
            return AwsTokens(CredentialsSource(aws_options(config)))
    raise OptionError(f"option {OPTION}: {name!r} is not supported, must be one of azure, google, aws", option=OPTION)


def _check_installed(module: str) -> None:
    if not is_installed(module):
        raise OptionError(f"option {OPTION}: {not_installed(module)}", option=OPTION)


class _PerProcess:
    """A library's credentials object, which may hold connections: a forked child makes its own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._pid = -1
        self._made: Any = None

    def get(self) -> Any:
        if self._pid != os.getpid():
            self._made, self._pid = self._make(), os.getpid()
        return self._made


class AzureTokens:
    """Microsoft Entra tokens for Event Hubs from azure-identity: environment, workload identity, managed identity or CLI."""

    def __init__(self, scope: str | None = None, make: Callable[[], Any] | None = None) -> None:
        """scope: defaults to that of the host's namespace. make: makes the credential; defaults to DefaultAzureCredential."""
        self._scope = scope
        self._credential = _PerProcess(make or _default_azure_credential)

    def __call__(self, host: str) -> Token:
        from azure.core.exceptions import ClientAuthenticationError

        scope = self._scope or f"https://{host}/.default"
        try:
            token = self._credential.get().get_token(scope)
        except ClientAuthenticationError as error:  # also CredentialUnavailableError
            raise AuthenticationError(f"azure-identity could not get a token for {scope}: {error.message}") from error
        return Token(Secret(token.token, None), float(token.expires_on), _subject(token.token))


def _default_azure_credential() -> Any:
    from azure.identity import DefaultAzureCredential

    # A Spark task cannot open a browser.
    return DefaultAzureCredential(exclude_interactive_browser_credential=True)


class GoogleTokens:
    """Tokens for Google's Managed Service for Apache Kafka: an access token in the form of a JWT (GcpLoginCallbackHandler)."""

    def __init__(self, make: Callable[[], Any] | None = None, clock: Callable[[], float] = time.time) -> None:
        """make: makes the credentials; defaults to application default credentials. clock: seconds since the epoch."""
        self._credentials = _PerProcess(make or _default_google_credentials)
        self._clock = clock

    def __call__(self, host: str) -> Token:
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        try:
            credentials = self._credentials.get()
            credentials.refresh(Request())
        except GoogleAuthError as error:
            raise AuthenticationError(f"google-auth could not get a token: {error}") from error
        subject = _google_account(credentials)
        expires_at = credentials.expiry.replace(tzinfo=UTC).timestamp()
        header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
        claims = {"exp": int(expires_at), "iat": int(self._clock()), "iss": "Google", "scope": "kafka", "sub": subject}
        parts = (json.dumps(header), json.dumps(claims), credentials.token)
        return Token(Secret(".".join(_base64url(part) for part in parts), None), expires_at, subject)


def _default_google_credentials() -> Any:
    import google.auth

    return google.auth.default(scopes=[GOOGLE_SCOPE])[0]


def _google_account(credentials: Any) -> str:
    """Returns the account of the token. Raises AuthenticationError for a person's credentials, as in Java."""
    account = getattr(credentials, "service_account_email", None)
    if not account:
        raise AuthenticationError(
            f"the Google credentials ({type(credentials).__name__}) do not belong to a service account: use a service account, or"
            " gcloud auth application-default login --impersonate-service-account=EMAIL"
        )
    return str(account)


class AwsTokens:
    """Tokens for MSK's OAUTHBEARER: a signed URL, as in aws-msk-iam-sasl-signer-python."""

    def __init__(self, source: CredentialsSource, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since the epoch."""
        self._source = source
        self._clock = clock

    def __call__(self, host: str) -> Token:
        (credentials, region), now_s = self._source.get(host), self._clock()
        server = f"kafka.{region}.amazonaws.com"
        query = dict(signed_query(credentials, server, region, now_s)) | {"User-Agent": AWS_USER_AGENT}
        url = f"https://{server}/?{encoded(query)}"
        # The time of the signature is in whole seconds.
        return Token(Secret(_base64url(url), None), int(now_s) + LIFETIME_S, credentials.key_id)


def _base64url(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _subject(token: str) -> str:
    """Returns the application or user of an Entra token; empty if it has neither."""
    claims = claims_of(token) or {}
    return next((claims[name] for name in ("appid", "upn", "oid") if isinstance(claims.get(name), str)), "")
