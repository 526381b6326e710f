"""One call to a registry: several URLs, retries, and an error that says what went wrong.

As in Java's client, a request goes to the next URL at once if one fails, and the URL that responded last is asked first. Then all
are tried again after a pause, `max.retries` times.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import logging
import random
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import OptionError, RegistryError, RegistryTimeoutError
from spark_kafka_sink.network.proxy import parse_proxy
from spark_kafka_sink.network.tls_failures import alert_of, is_no_tls
from spark_kafka_sink.options.registry_options import (
    CONNECT_S,
    ISSUER,
    PREFIX,
    PROXY,
    URL,
    USER_INFO,
    BaseUrl,
    RegistryConfig,
    base_urls,
    bearer_source,
    with_prefix,
)
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.peer_text import MAX_QUOTED, quoted
from spark_kafka_sink.registry.auth import Login, credentials, revealed
from spark_kafka_sink.security.http import HttpAnswer, HttpProxy, HttpRequest, HttpTimeouts, basic, send, why
from spark_kafka_sink.security.tls_context import ReloadingTls
from spark_kafka_sink.version import __version__

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a response. Confluent Cloud accepts schemas of 1 MB."""
MAX_SAID: Final = 2000
"""Number of characters that an error quotes of a registry's message, which may list many fields."""

_RETRIABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_REDIRECTIONS: Final = range(300, 400)
_SUCCESSES: Final = range(200, 300)
_KINDS: Final = frozenset({"text/html", "text/plain", "text/xml", "application/xml"})
_JSON: Final = "application/vnd.schemaregistry.v1+json"
_HEADERS: Final = {
    "Accept": f"{_JSON}, application/vnd.schemaregistry+json, application/json",
    "Confluent-Accept-Unknown-Properties": "true",
    "User-Agent": f"spark-kafka-sink/{__version__}",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a registry.

    Attributes:
        action: what it does, for errors: "register a schema for subject 'x'".
        method: HTTP method.
        path: below the base URL.
        query: parameters.
        body: JSON to send; None for none.
        subject: the subject, for errors; empty for none.
    """

    action: str
    method: str
    path: str
    query: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    body: Mapping[str, object] | None = None
    subject: str = ""

    def facts(self) -> dict[str, str]:
        """Returns what errors have as facts."""
        return {"subject": self.subject} if self.subject else {}


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why one URL gave no usable response, where another try may succeed."""

    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    is_timeout: bool = False
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When calls must end. at: on the clock of `Timing.now`. limit_s: the limit that it was made of, for errors."""

    at: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Clocks, pauses and random numbers of a client. `now`: on the clock that `sleep` moves. `wall`: since the epoch."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    wall: Callable[[], float] = time.time


class RegistryHttp:
    """Sends calls, each on a new connection. Any thread may use it."""

    def __init__(self, config: RegistryConfig, call_s: float, timing: Timing) -> None:
        """call_s: time limit of one call with its retries, in s. Raises OptionError as `registry_config` does."""
        self._config = config
        self._call_s = call_s
        self._timing = timing
        self._urls = base_urls(revealed(config.url, URL), URL)
        self._first = 0
        self._secrets: dict[str, tuple[str, ...]] = {}  # by URL: what requests held, which a registry may echo
        self._credentials = credentials(config, timing.wall)
        self._proxy, self._proxy_secrets = _proxy(config.proxy)
        try:
            self._tls = ReloadingTls(config.tls) if any(url.is_encrypted for url in self._urls) else None
        except OptionError as error:
            raise with_prefix(error) from None
        self._warn()

    @property
    def urls(self) -> str:
        """The registry's URLs, for errors."""
        return ", ".join(url.url for url in self._urls)

    @property
    def holds_login(self) -> bool:
        """Whether a request held a login, which the registry may repeat."""
        return any(self._secrets.values())

    def shown(self, text: str, most: int = MAX_QUOTED) -> str:
        """Returns a name in a registry's success for an error, as one printable line without what requests held of logins."""
        return quoted(text, {secret for each in list(self._secrets.values()) for secret in each}, most)

    def deadline(self, limit_s: float) -> Deadline:
        """Returns the deadline of what starts now."""
        return Deadline(self._timing.now() + limit_s, limit_s)

    def send(self, call: Call, shared: Deadline | None = None) -> Any:
        """Returns the JSON of a response; None if it is empty.

        Args:
            call: the request.
            shared: the deadline of several calls; None: only the call's own counts.

        Raises:
            RegistryTimeoutError: No URL responded in time.
            RegistryError: No URL responded, the registry rejected the request, or its response is not valid.
            AuthenticationError: The token endpoint gave no token.
            OptionError: A reference of an option cannot be resolved.
        """
        config, limit = self._config, self.deadline(self._call_s)
        if shared is not None and shared.at < limit.at:
            limit = shared
        deadline = limit.at
        if self._timing.now() >= deadline:
            text = f"could not {call.action}: the time limit of {limit.limit_s:g} s was used up by earlier requests"
            raise RegistryTimeoutError(text, url=self.urls, **call.facts())
        for retry in range(config.max_retries + 1):
            failures: dict[str, _Failure] = {}
            first = self._first
            for number in (*range(first, len(self._urls)), *range(first)):
                base = self._urls[number]
                found = self._try(base, call, deadline)
                if not isinstance(found, _Failure):
                    self._first = number
                    return found.read()
                failures[base.url] = found
            tries = counted(retry + 1, "try", "tries")
            # confluent-kafka's pause: a random part of a limit that doubles.
            most_ms = min(config.retries_wait_ms * 2.0**retry, config.retries_max_wait_ms)
            pause_s = max(self._timing.chance() * most_ms / 1000, *(failure.retry_after_s for failure in failures.values()))
            if retry == config.max_retries:
                self._fail(call, failures, tries)
            if self._timing.now() + pause_s >= deadline:
                self._fail(call, failures, f"{tries}; the time limit is {limit.limit_s:g} s", is_over=True)
            logger.warning("retrying to %s in %.1f s: %s", call.action, pause_s, _listed(failures))
            self._timing.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    def _try(self, base: BaseUrl, call: Call, deadline: float) -> _Failure | _Response:
        login = self._login(base, deadline)
        found = self._once(base, call, deadline, login)
        if isinstance(found, _Response) and found.answer.status == 401 and self._credentials.refused(login):
            return self._once(base, call, deadline, self._login(base, deadline))
        return found

    def _login(self, base: BaseUrl, deadline: float) -> Login:
        return self._credentials.login(base.user_info or self._urls[0].user_info, max(deadline - self._timing.now(), 0.001))

    def _once(self, base: BaseUrl, call: Call, deadline: float, login: Login) -> _Failure | _Response:
        query = f"?{urllib.parse.urlencode(call.query)}" if call.query else ""
        body = None if call.body is None else json.dumps(call.body).encode()
        headers = {**_HEADERS, **({} if body is None else {"Content-Type": _JSON}), **login.headers}
        limit_s = min(self._config.request_timeout_ms / 1000, max(deadline - self._timing.now(), 0.001))
        limits = HttpTimeouts(min(CONNECT_S, limit_s), limit_s, limit_s)
        secrets = self._secrets[base.url] = (*login.secrets, *self._proxy_secrets)
        try:
            request = HttpRequest(call.method, f"{base.url}{call.path}{query}", headers, body)
            tls = self._tls.current().context if self._tls is not None else None
            answer = send(request, limits, tls, self._proxy, max_bytes=MAX_ANSWER_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise _untrusted(base, call, error) from None
        except TimeoutError:
            return _Failure("did not respond in time", {"url": base.url}, is_timeout=True)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return _Failure(_why(error, base), {"url": base.url})
        response = _Response(base, call, answer, login, holds_secret=bool(secrets))
        if answer.status not in _RETRIABLE:
            return response
        return _Failure(f"returned {response.said()}", response.facts(), retry_after_s=self._retry_after_s(answer))

    def _retry_after_s(self, answer: HttpAnswer) -> float:
        """Returns the pause that a registry requests, in s or by a date, up to the longest allowed pause."""
        text = answer.headers.get("retry-after", "").strip()
        try:
            seconds = float(text) if text.isdigit() else email.utils.parsedate_to_datetime(text).timestamp() - self._timing.wall()
        except (TypeError, ValueError, OverflowError):
            return 0.0
        return max(0.0, min(seconds, self._config.retries_max_wait_ms / 1000))

    def _fail(self, call: Call, failures: Mapping[str, _Failure], tries: str, *, is_over: bool = False) -> NoReturn:
        last = list(failures.values())[-1]
        is_timeout = is_over or all(failure.is_timeout for failure in failures.values())
        responded = any("status" in failure.facts for failure in failures.values())
        hint = "" if responded else f". Check {URL}"
        raise (RegistryTimeoutError if is_timeout else RegistryError)(
            f"could not {call.action}: {_listed(failures)} ({tries}){hint}", **last.facts, **call.facts()
        )

    def _warn(self) -> None:
        config = self._config
        plain = [url for url in self._urls if not url.is_encrypted]
        has_login = bearer_source(config) or config.basic_auth_user_info or any(url.user_info for url in self._urls)
        if plain and has_login:
            what = "the token" if bearer_source(config) else "the password"
            logger.warning("the schema registry %s begins with http://: %s is sent unencrypted; use https://", plain[0].url, what)
        if (config.bearer_auth_issuer_endpoint_url or "").lower().startswith("http://"):
            logger.warning("%s begins with http://: the client secret is sent unencrypted; use https://", ISSUER)
        if self._tls is None and (unused := [name for name in config.tls.given() if name.startswith("ssl.")]):
            options = ", ".join(PREFIX + name for name in unused)
            logger.warning("%s does not begin with https://, so these options are ignored: %s", URL, options)
        if self._tls is not None and not config.tls.ssl_endpoint_identification_algorithm:
            option = f"{PREFIX}ssl.endpoint.identification.algorithm"
            logger.warning("%s is empty, so the certificate of the schema registry may be that of any host", option)


@dataclass(frozen=True, slots=True)
class _Response:
    """A response, and what it answers. holds_secret: whether the request held a login, which the response may repeat."""

    base: BaseUrl
    call: Call
    answer: HttpAnswer
    login: Login
    holds_secret: bool

    def read(self) -> Any:
        """Returns the JSON of a success. Raises RegistryError otherwise."""
        answer, status = self.answer, self.answer.status
        if status in _REDIRECTIONS:
            location = self._quoted(answer.location.partition("?")[0].rpartition("@")[2])
            self._refuse(
                f"redirects (HTTP {status}){f' to {location}' if location else ''}, which is not followed because requests may "
                f"hold a login. Set {URL} to the right URL"
            )
        if status not in _SUCCESSES:
            self._refuse(f"returned {self.said()}{self._hint()}")
        if not answer.body:
            return None
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            kind = self._content_type()
            if kind == "JSON":
                self._refuse(f"returned HTTP {status} with invalid JSON")
            self._refuse(
                f"returned HTTP {status} with {kind} instead of JSON. Check {URL}: it may be that of a login "
                "page or of another service"
            )

    def said(self) -> str:
        """Returns the status with the registry's message."""
        status, code, message = self.answer.status, self._code(), self._fields().get("message")
        numbers = f"HTTP {status}" if code in (None, status) else f"HTTP {status}, error {code}"
        if isinstance(message, str) and (text := self._quoted(message, MAX_SAID)):
            return f"{numbers}: {text}"
        kind = self._content_type()
        return f"{numbers} ({kind})" if self.answer.body and kind != "JSON" else numbers

    def facts(self) -> dict[str, object]:
        code = self._code()
        return {"url": self.base.url, "status": self.answer.status, **({} if code is None else {"error_code": code})}

    def _fields(self) -> Mapping[str, object]:
        try:
            read = json.loads(self.answer.body)
        except (ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}

    def _code(self) -> int | None:
        code = self._fields().get("error_code")
        return code if type(code) is int and (code if code < 1000 else code // 100) in (0, *range(400, 600)) else None

    def _quoted(self, text: str, most: int = MAX_QUOTED) -> str:
        """Returns text of the response; none if it may repeat a login, which has too many encodings to look for."""
        return "" if self.holds_secret else quoted(text, most=most)

    def _content_type(self) -> str:
        kind = self.answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        return "JSON" if "json" in kind else kind if kind in _KINDS else "no known content type"

    def _hint(self) -> str:
        match self.answer.status:
            case 401 if "Authorization" not in self.login.headers:
                return f". It requires a login: set {USER_INFO} or {PREFIX}bearer.auth.token"
            case 401:
                return ". It rejected the login: check the user and password, or the token"
            case 403:
                return ". The login lacks a right for this request"
            case 404 if self._code() in (None, 404):
                return f". Check the path of {URL}; that of Apicurio Registry ends with /apis/ccompat/v7"
            case 407:
                return f". The proxy requires a login: set {PROXY} to http://user:password@host:port"
            case 413:
                return ". The schema is too large for the registry, or for a proxy in front of it"
        return ""

    def _refuse(self, text: str) -> NoReturn:
        raise RegistryError(
            f"could not {self.call.action}: the schema registry {self.base.url} {text}", **self.facts(), **self.call.facts()
        )


def _listed(failures: Mapping[str, _Failure]) -> str:
    return "; ".join(f"the schema registry {url} {failure.text}" for url, failure in failures.items())


def _untrusted(base: BaseUrl, call: Call, error: ssl.SSLCertVerificationError) -> RegistryError:
    if "ostname mismatch" in error.verify_message or "IP address mismatch" in error.verify_message:
        hint = f"Set {URL} to a host name of the certificate"
    else:
        hint = f"Set {PREFIX}ssl.ca.location to the authority that signed it"
    text = f"could not {call.action}: the certificate of {base.url} is not trusted: {error.verify_message}. {hint}"
    return RegistryError(text, url=base.url, **call.facts())


def _why(error: Exception, base: BaseUrl) -> str:
    identity = f"{PREFIX}ssl.certificate.location and {PREFIX}ssl.key.location"
    if base.is_encrypted and isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        # With TLS 1.3 a client sends its request before the other end looks at its certificate, and then may not see the alert.
        return f"closed the connection. If it requires a client's certificate, set {identity}"
    if isinstance(error, ssl.SSLError):
        if is_no_tls(error):
            return "does not use TLS at this port. Use http:// or another port"
        alert = alert_of(error)
        if "certificate" in alert or "unknown ca" in alert:
            return f"rejected the client's certificate, or requires one ({alert}): set {identity}"
        return f"failed in the TLS handshake: {quoted(alert or str(error.reason or error))}"
    text = why(error)
    if text == "Tunnel connection failed: 407":
        text = f"{text}: set {PROXY} to http://user:password@host:port"
    if isinstance(error, ConnectionError) or not isinstance(error, http.client.HTTPException | ValueError):
        return f"could not be reached: {quoted(text)}"
    return f"sent no valid HTTP response: {text}"


def _proxy(given: Secret | None) -> tuple[HttpProxy | None, tuple[str, ...]]:
    """Returns the proxy of the options, and the secrets for it. Raises OptionError for a wrong URL, which it never shows."""
    if given is None:
        return None, ()
    try:
        proxy = parse_proxy(given)
        problem = "" if proxy.scheme == "http" else "must begin with"
    except OptionError as error:
        problem = error.message.removeprefix("option proxy.url: ")
    if "must begin with" in problem:  # parse_proxy names the schemes of proxies to brokers
        problem = "the URL must begin with http://; other proxies are not supported"
    if problem:
        raise OptionError(f"option {PROXY}: {problem}", option=PROXY)
    host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
    login = basic(proxy.user, proxy.password) if proxy.password is not None else ""
    secrets = (proxy.password, login.removeprefix("Basic ")) if proxy.password else ()
    return HttpProxy(f"{host}:{proxy.port}", login), secrets
