"""Tokens of azure, google and aws, by their real libraries, without a network."""

from __future__ import annotations

import base64
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import google.auth.compute_engine
import google.auth.credentials
import google.auth.exceptions
import google.oauth2.credentials
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from azure.core.credentials import AccessToken
from azure.identity import CredentialUnavailableError, DefaultAzureCredential
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl.cloud_tokens import AzureTokens, GoogleTokens, token_provider
from spark_kafka_sink.security.sasl.oauthbearer import claims_of
from tests.security.sasl.aws_environment import HOST, clean_environment, set_key
from tests.security.sasl.http_servers import Answer, http_server

EXPIRES = 4_000_000_000
NAMESPACE = "spaces.servicebus.windows.net"


def config(**settings: Any) -> SecurityConfig:
    return SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", **settings)


def decoded(part: str) -> str:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()


def jwt_of(**claims: object) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)]
    return ".".join(parts) + ".c2ln"


# Azure


class FakeCredential:
    """A credential of azure-identity's kind: what its protocol TokenCredential asks for."""

    def __init__(self, token: str = "abc", error: Exception | None = None) -> None:
        self.scopes: list[str] = []
        self._token = token
        self._error = error

    def get_token(self, *scopes: str) -> AccessToken:
        self.scopes.extend(scopes)
        if self._error is not None:
            raise self._error
        return AccessToken(self._token, EXPIRES)


def test_azure_asks_for_the_scope_of_the_namespace() -> None:
    credential = FakeCredential(jwt_of(appid="app-1", oid="object-1"))
    token = AzureTokens(None, lambda: credential)(NAMESPACE)
    assert credential.scopes == [f"https://{NAMESPACE}/.default"]
    assert token.value.reveal() == jwt_of(appid="app-1", oid="object-1")
    assert (token.expires_at, token.principal) == (EXPIRES, "app-1")


def test_azure_asks_for_the_scope_of_the_option() -> None:
    credential = FakeCredential()
    token = AzureTokens("api://kafka/.default", lambda: credential)("private.example")
    assert credential.scopes == ["api://kafka/.default"]
    assert token.principal == ""


def test_azure_says_why_there_is_no_token() -> None:
    credential = FakeCredential(error=CredentialUnavailableError("no managed identity here"))
    with pytest.raises(
        AuthenticationError, match=r"could not get a token for https://spaces\.servicebus.*: no managed identity here"
    ):
        AzureTokens(None, lambda: credential)(NAMESPACE)


def test_azure_uses_the_default_credential_which_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[DefaultAzureCredential] = []

    def get_token(self: DefaultAzureCredential, *_: str) -> AccessToken:
        made.append(self)
        return AccessToken("t", EXPIRES)

    monkeypatch.setattr(DefaultAzureCredential, "get_token", get_token)
    provider = token_provider("azure", config())
    assert provider(NAMESPACE).value == Secret("t", None)
    provider(NAMESPACE)
    assert made[0] is made[1]
    kinds = [type(each).__name__ for each in made[0].credentials]
    assert "ManagedIdentityCredential" in kinds
    assert "InteractiveBrowserCredential" not in kinds
    made[0].close()


def test_azure_gets_the_token_of_a_managed_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    answer = {"access_token": jwt_of(oid="object-1"), "expires_on": str(EXPIRES), "resource": "r", "token_type": "Bearer"}
    with http_server(Answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{server.port}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "h3ader")
        token = token_provider("azure", config())(NAMESPACE)
    assert (token.value.reveal(), token.expires_at, token.principal) == (answer["access_token"], EXPIRES, "object-1")
    (request,) = server.requests
    assert dict(parse_qsl(urlsplit(request.path).query))["resource"] == f"https://{NAMESPACE}"


# Google


class GoogleCredentials(google.auth.credentials.Credentials):
    """Credentials of google-auth's kind for a service account, whose refresh needs no network."""

    service_account_email = "sink@project.iam.gserviceaccount.com"

    def refresh(self, request: object) -> None:
        self.token = "ya29.access"
        self.expiry = datetime.datetime.fromtimestamp(EXPIRES, datetime.UTC).replace(tzinfo=None)


def test_google_wraps_the_access_token_as_its_login_handler_does() -> None:
    token = GoogleTokens(GoogleCredentials, lambda: 1_700_000_000.5)("bootstrap.x.managedkafka.p.cloud.goog")
    header, claims, signature = (decoded(part) for part in token.value.reveal().split("."))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    account = GoogleCredentials.service_account_email
    expected = {"exp": EXPIRES, "iat": 1_700_000_000, "iss": "Google", "scope": "kafka", "sub": account}
    assert json.loads(claims) == expected
    assert signature == "ya29.access"
    assert (token.expires_at, token.principal) == (EXPIRES, account)
    assert "=" not in token.value.reveal()


def test_google_wants_a_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    def refresh(self: Any, request: object) -> None:
        self.token, self.expiry = "ya29", datetime.datetime(2099, 1, 1)

    monkeypatch.setattr(google.oauth2.credentials.Credentials, "refresh", refresh)
    with pytest.raises(AuthenticationError, match="do not belong to a service account"):
        GoogleTokens(lambda: google.oauth2.credentials.Credentials("t"))("host")  # type: ignore[no-untyped-call]


def test_google_uses_the_application_default_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(AuthenticationError, match=r"google-auth could not get a token: File .*missing\.json was not found"):
        token_provider("google", config())("host")


def test_google_gets_the_token_of_a_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    answer = {"access_token": "ya29.real", "expires_in": 3600, "token_type": "Bearer"}
    with http_server(Answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})) as server:
        uri = f"http://127.0.0.1:{server.port}/token"
        account = {"type": "service_account", "client_email": "sink@p.iam", "private_key": key, "token_uri": uri}
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        before = time.time()
        token = token_provider("google", config())("bootstrap")
    assert decoded(token.value.reveal().split(".")[2]) == "ya29.real"
    assert token.principal == "sink@p.iam"
    assert before + 3599 <= token.expires_at <= time.time() + 3600
    (request,) = server.requests
    asked = claims_of(dict(parse_qsl(request.body.decode()))["assertion"]) or {}
    assert asked["scope"] == "https://www.googleapis.com/auth/cloud-platform"


# AWS


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    set_key(monkeypatch, token="T0KEN+/=")


@pytest.mark.usefixtures("aws")
def test_aws_makes_the_token_that_amazons_signer_makes() -> None:
    # Both take the time of day, in seconds: two in the same second are equal.
    for _ in range(5):
        before = time.time()
        token = token_provider("aws", config())(HOST)
        theirs, expires_ms = MSKAuthTokenProvider.generate_auth_token("eu-west-1")
        if token.expires_at * 1000 == expires_ms:
            break
    assert token.expires_at * 1000 == expires_ms
    url, their_url = decoded(token.value.reveal()), decoded(theirs)
    assert url.partition("&User-Agent=")[0] == their_url.partition("&User-Agent=")[0]
    assert dict(parse_qsl(urlsplit(url).query))["User-Agent"] == "spark-kafka-sink"
    assert token.principal == "AKIA1"
    assert before + 899 <= token.expires_at <= time.time() + 900


@pytest.mark.usefixtures("aws")
def test_aws_takes_the_credentials_that_a_login_line_names(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIA9\naws_secret_access_key = S3CRET\n")
    line = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required awsProfileName=work;"
    assert token_provider("aws", config(sasl_jaas_config=Secret(line)))(HOST).principal == "AKIA9"


# What is missing


@pytest.mark.parametrize(
    ("name", "module", "text"),
    [
        ("azure", "azure.identity", r"azure-identity is not installed: pip install 'spark-kafka-sink\[azure\]'"),
        ("google", "google.auth", r"google-auth is not installed: pip install 'spark-kafka-sink\[gcp\]'"),
        ("google", "requests", r"requests is not installed: pip install 'spark-kafka-sink\[gcp\]'"),
        ("aws", "botocore", r"pip install 'spark-kafka-sink\[aws\]'"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, name: str, module: str, text: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(OptionError, match=text) as error:
        token_provider(name, config())
    assert "\n" not in error.value.message


def test_a_provider_that_nobody_has_is_an_error() -> None:
    with pytest.raises(OptionError, match="'oracle' is not supported, must be one of azure, google, aws"):
        token_provider("oracle", config())
