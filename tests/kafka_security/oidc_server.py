"""A real OpenID Connect server from Maven Central: it hands out signed tokens for client credentials."""

from __future__ import annotations

import base64
import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.kafka.jars import jars
from tests.kafka.java_server import JavaServer
from tests.kafka.ports import free_ports

POM = Path(__file__).with_name("pom.xml")
MAIN_CLASS = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
LOGGING = """<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""

LONG, SHORT = "kafka", "short"
"""Issuers, each with a signing key of its own. A token's subject is the client id, its audience the scope that was asked for."""
SHORT_LIFE_S = 5
SUBJECT_OF_SHORT = "oidc-short"
AUDIENCE = "kafka"


class OidcServer(JavaServer):
    """An OpenID Connect server. It does not know its clients: any client id and secret get a token."""

    def __init__(self, folder: Path) -> None:
        classes = jars(POM)
        (port,) = free_ports(1)
        self.url = f"http://localhost:{port}"
        logging = folder / "logback.xml"
        logging.write_text(LOGGING)
        settings = {
            "SERVER_HOSTNAME": "127.0.0.1",
            "SERVER_PORT": str(port),
            "JSON_CONFIG": json.dumps(_CONFIG),
            "LOGBACK_CONFIG": str(logging),
        }
        arguments = ("-Xmx128m", "-cp", str(classes / "*"), MAIN_CLASS)
        super().__init__("the OpenID Connect server", arguments, settings, folder, f"{self.url}/isalive")

    def token_url(self, issuer: str = LONG) -> str:
        return f"{self.url}/{issuer}/token"

    def keys_url(self, issuer: str = LONG) -> str:
        """The issuer's JWKS: the public keys that its tokens are checked with."""
        return f"{self.url}/{issuer}/jwks"

    def token(self, client_id: str, issuer: str = LONG, *, scope: str = AUDIENCE) -> str:
        """Returns a token for client credentials, as a client of the token endpoint gets it."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "scope": scope}).encode()
        login = base64.b64encode(f"{client_id}:client-secret".encode()).decode()
        request = urllib.request.Request(self.token_url(issuer), data=form, headers={"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            told: Mapping[str, str] = json.load(answer)
        return told["access_token"]


_CONFIG = {
    "interactiveLogin": False,
    "httpServer": "NettyWrapper",
    "tokenCallbacks": [
        {
            "issuerId": SHORT,
            "tokenExpiry": SHORT_LIFE_S,
            "requestMappings": [
                {"requestParam": "grant_type", "match": "*", "claims": {"sub": SUBJECT_OF_SHORT, "aud": [AUDIENCE]}}
            ],
        }
    ],
}
