"""A real OpenID Connect server from Maven Central: it hands out signed tokens for client credentials."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka import java
from tests.kafka.guardian import Guardian
from tests.kafka.jars import jars
from tests.kafka.ports import free_ports

POM = Path(__file__).with_name("pom.xml")
MAIN_CLASS = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
START_S = 60.0
OPTIONS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
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


class OidcServer:
    """Starts in the constructor and is ready after `wait()`; ends in `stop()` or at the end of a `with`.

    It does not know its clients: any client id and secret get a token.
    """

    def __init__(self, folder: Path) -> None:
        classes = jars(POM)
        (port,) = free_ports(1)
        self.url = f"http://localhost:{port}"
        self._output = folder / "oidc.log"
        logging = folder / "logback.xml"
        logging.write_text(LOGGING)
        self._guardian = Guardian()
        command = [java.java(), *OPTIONS, "-cp", str(classes / "*"), MAIN_CLASS]
        settings = {
            "SERVER_HOSTNAME": "127.0.0.1",
            "SERVER_PORT": str(port),
            "JSON_CONFIG": json.dumps(_CONFIG),
            "LOGBACK_CONFIG": str(logging),
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guardian.watch_process(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def token_url(self, issuer: str = LONG) -> str:
        return f"{self.url}/{issuer}/token"

    def keys_url(self, issuer: str = LONG) -> str:
        """The issuer's JWKS: the public keys that its tokens are checked with."""
        return f"{self.url}/{issuer}/jwks"

    def wait(self) -> None:
        """Returns when the server answers; TimeoutError with its output after a minute."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                _get(f"{self.url}/isalive")
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    said = self._output.read_text(errors="replace")[-2000:]
                    raise TimeoutError(f"the OpenID Connect server did not start:\n{said}") from None
                time.sleep(0.05)

    def token(self, client_id: str, issuer: str = LONG, *, scope: str = AUDIENCE) -> str:
        """Returns a token for client credentials, as a client of the token endpoint gets it."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "scope": scope}).encode()
        login = base64.b64encode(f"{client_id}:client-secret".encode()).decode()
        request = urllib.request.Request(self.token_url(issuer), data=form, headers={"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            told: Mapping[str, str] = json.load(answer)
        return told["access_token"]

    def stop(self) -> None:
        """Kills the server; may be called again."""
        self._process.kill()
        self._process.wait(timeout=30)
        self._guardian.forget_process(self._process.pid)
        self._guardian.close()


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


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
    return body
