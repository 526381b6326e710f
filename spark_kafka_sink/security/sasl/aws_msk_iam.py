"""AWS_MSK_IAM: a login at Amazon MSK with a request signed with AWS credentials, as aws-msk-iam-auth for Java sends it."""

from __future__ import annotations

import functools
import hashlib
import hmac
import importlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import quote

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.installation import is_installed, not_installed
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.credentials import jaas_of
from spark_kafka_sink.security.sasl.token_cache import SharedTokens, Token, TokenCache

# AWS credentials from botocore: its default chain, a profile, or a role. One lookup serves all producers of a process.

GOOD_FOR_S: Final = 600
"""botocore returns credentials that are valid for at least this long, or raises (RefreshableCredentials' mandatory refresh)."""

_FIND: Final = (
    "found no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, write a profile to ~/.aws/credentials, or give"
    " the instance, container or pod a role"
)
# Of aws-msk-iam-auth's MSKCredentialProvider. botocore retries by its own settings and knows no fallback; nothing is logged.
_WITHOUT_EFFECT: Final = frozenset({"awsAddDefaultProviders", "awsDebugCreds", "awsMaxBackOffTimeMs", "awsMaxRetries"})


def _option(name: str) -> Any:
    return field(default="", metadata={"option": name}, repr=False)


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """The choice of credentials: a profile, a role, or botocore's default chain, with the option names of aws-msk-iam-auth.

    There is no fallback: a role that cannot be assumed is an error, while Java continues with other credentials.
    """

    profile: str = _option("awsProfileName")
    role: str = _option("awsRoleArn")
    session_name: str = _option("awsRoleSessionName")
    external_id: str = _option("awsRoleExternalId")
    key_id: str = _option("awsRoleAccessKeyId")
    secret_key: str = _option("awsRoleSecretAccessKey")
    token: str = _option("awsRoleSessionToken")
    sts_region: str = _option("awsStsRegion")
    fips: str = _option("awsShouldUseFips")


_FIELDS: Final = {each.metadata["option"]: each.name for each in fields(AwsOptions)}


def aws_options(config: SecurityConfig) -> AwsOptions:
    """Returns the login line's options. Raises OptionError for an unsupported option, and if botocore is missing."""
    if not is_installed("botocore"):
        raise OptionError(f"AWS credentials require botocore: {not_installed('botocore')}", option="sasl.mechanism")
    jaas = jaas_of(config)
    given: dict[str, str] = {}
    for name, value in (jaas.options if jaas is not None else {}).items():
        if name in _FIELDS:
            given[_FIELDS[name]] = value
        elif name == "awsMskRegionProvider":
            raise _wrong(
                "awsMskRegionProvider is a Java class, which is not supported; set the environment variable AWS_REGION instead"
            )
        elif name.startswith("aws") and name not in _WITHOUT_EFFECT:
            raise _wrong(f"{name} is not supported, must be one of {', '.join(_FIELDS)}")
    options = AwsOptions(**given)
    if options.profile and options.role:
        raise _wrong("awsProfileName and awsRoleArn cannot be combined; set the role in the profile, as role_arn")
    if not options.role and len(given) > bool(options.profile):
        raise _wrong("options of a role are set, but awsRoleArn is not")
    if bool(options.key_id) != bool(options.secret_key):
        raise _wrong("awsRoleAccessKeyId and awsRoleSecretAccessKey must be set together")
    return options


def _wrong(text: str) -> OptionError:
    return OptionError(f"option sasl.jaas.config: {text}", option="sasl.jaas.config")


class _Hush(logging.Filter):
    """Drops botocore's log lines below INFO in a thread that requests credentials: they contain keys and tokens from STS.

    It is added to botocore's loggers at the first lookup. Other calls of the program log as before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._here = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.INFO or not getattr(self._here, "depth", 0)

    def __enter__(self) -> None:
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if name.partition(".")[0] == "botocore" and isinstance(logger, logging.Logger):
                logger.addFilter(self)
        self._here.depth = getattr(self._here, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        self._here.depth -= 1


_HUSH: Final = _Hush()


class CredentialsSource:
    """Credentials from botocore, which caches and refreshes them. A lookup may wait for the network.

    Used by one thread at a time, not the client's. A forked child opens its own connections.
    """

    def __init__(self, options: AwsOptions) -> None:
        self._options = options
        self._pid = -1
        self._session: Any = None
        self._credentials: Any = None

    def get(self, host: str) -> tuple[AwsCredentials, str]:
        """Returns credentials that are valid for ten minutes, and the region of a broker.

        The region is the one in the host name, or else that of the environment or the profile.

        Raises AuthenticationError if there are no credentials, or the region is unknown.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        importlib.import_module("botocore.session")  # with the loggers to hush
        with _HUSH:
            try:
                return self._get(host)
            except (BotoCoreError, ClientError) as error:
                raise AuthenticationError(f"could not get AWS credentials{self._whose()}: {error}") from error

    def _get(self, host: str) -> tuple[AwsCredentials, str]:
        if self._pid != os.getpid():
            self._open()
        frozen = self._credentials.get_frozen_credentials()
        region = region_of(host) or os.environ.get("AWS_REGION") or self._session.get_config_variable("region")
        if not region:
            text = f"the AWS region is unknown, because {host} does not name it: set the environment variable AWS_REGION"
            raise AuthenticationError(text)
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token or ""), region

    def _open(self) -> None:
        import botocore.session
        from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials

        options = self._options
        session = botocore.session.Session(profile=options.profile or None)
        found = (
            Credentials(options.key_id, options.secret_key, options.token or None)
            if options.key_id
            else session.get_credentials()
        )
        if found is None:
            raise AuthenticationError(_FIND)
        if options.role:
            arguments = {"RoleSessionName": options.session_name or "spark-kafka-sink"}
            if options.external_id:
                arguments["ExternalId"] = options.external_id
            fetcher = AssumeRoleCredentialFetcher(
                functools.partial(
                    session.create_client, region_name=options.sts_region or "aws-global", config=self._sts_config()
                ),
                found,
                options.role,
                extra_args=arguments,
            )
            found = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        self._session, self._credentials, self._pid = session, found, os.getpid()

    def _sts_config(self) -> Any:
        from botocore.config import Config

        # Two attempts within the 20 s that a login waits for a token.
        return Config(
            connect_timeout=3,
            read_timeout=5,
            retries={"total_max_attempts": 2},
            use_fips_endpoint=self._options.fips.strip().lower() == "true",
        )

    def _whose(self) -> str:
        if self._options.role:
            return f" of the role {self._options.role}"
        return f" of the profile {self._options.profile}" if self._options.profile else ""


def shared_credentials(options: AwsOptions) -> Callable[[], TokenCache]:
    """Returns a function that returns this process's cache of credentials. Its tokens hold credentials, see `credentials_in`."""

    def make() -> TokenCache:
        source = CredentialsSource(options)

        def token(host: str) -> Token:
            found, region = source.get(host)
            text = json.dumps([found.key_id, found.secret_key, found.token])
            return Token(Secret(text, None), time.time() + GOOD_FOR_S, found.key_id, {"region": region})

        return TokenCache(token, is_per_host=True)

    shared = SharedTokens(("aws", options), make)
    return lambda: shared.cache


def credentials_in(token: Token) -> tuple[AwsCredentials, str]:
    """Returns the credentials and the region that a token of `shared_credentials` holds."""
    return AwsCredentials(*json.loads(token.value.reveal())), token.extensions["region"]


# Signatures

LIFETIME_S: Final = 900
"""How long a signature is valid, as in Amazon's clients (AWS4SignedPayloadGenerator.EXPIRY_DURATION_MINUTES)."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"
_EMPTY_BODY: Final = hashlib.sha256(b"").hexdigest()
_REGION: Final = re.compile(
    r"(?<![a-z0-9-])"
    r"((?:us|eu|ap|sa|ca|me|af|il|mx|cn|us-gov|us-iso[a-z]?|eu-isoe|eusc-de)"
    r"-(?:north|south|east|west|central|northeast|northwest|southeast|southwest)-[1-9])"
    r"(?![a-z0-9-])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """A signing key. token: session token of temporary credentials, or empty. repr shows only the key's id."""

    key_id: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"AwsCredentials({self.key_id})"


def region_of(host: str) -> str | None:
    """Returns the region in a broker's host name such as b-1.x.kafka.eu-west-1.amazonaws.com; None for other names."""
    match = _REGION.search(host)
    return match[1].lower() if match else None


def signed_query(credentials: AwsCredentials, host: str, region: str, now_s: float) -> Mapping[str, str]:
    """Returns the parameters of a signed GET of https://host/, in the order of botocore's URLs; the signature is last.

    Args:
        host: The host that the signature is for.
        now_s: Current time in seconds since the epoch.
    """
    time = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = (time[:8], region, _SERVICE, "aws4_request")
    query = {
        "Action": f"{_SERVICE}:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": "/".join((credentials.key_id, *scope)),
        "X-Amz-Date": time,
        "X-Amz-Expires": str(LIFETIME_S),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        query["X-Amz-Security-Token"] = credentials.token
    request = "\n".join(("GET", "/", encoded(dict(sorted(query.items()))), f"host:{host}\n", "host", _EMPTY_BODY))
    text = "\n".join((_ALGORITHM, time, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()))
    key = b"AWS4" + credentials.secret_key.encode()
    for part in (*scope, text):
        key = hmac.digest(key, part.encode(), "sha256")
    return query | {"X-Amz-Signature": key.hex()}


def encoded(query: Mapping[str, str]) -> str:
    """Returns parameters as a query string. All characters except RFC 3986's unreserved ones are encoded."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())


# The login

VERSION: Final = "2020_10_22"
USER_AGENT: Final = "spark-kafka-sink"
MAX_RESPONSE_BYTES: Final = 65_536


def first_message(credentials: AwsCredentials, host: str, region: str, now_s: float) -> bytes:
    """Returns the signed payload: IAMSaslClient's first message, as JSON."""
    query = signed_query(credentials, host, region, now_s)
    payload = {"version": VERSION, "host": host, "user-agent": USER_AGENT} | {name.lower(): query[name] for name in query}
    return json.dumps(payload, separators=(",", ":")).encode()


class _State(Enum):
    FIRST = auto()
    ANSWER = auto()
    COMPLETE = auto()
    FAILED = auto()


class AwsMskIamClient:
    """One login. The signature is made when the message is sent, because it is good for 15 minutes only."""

    def __init__(self, credentials: AwsCredentials, host: str, region: str, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since the epoch."""
        self._credentials = credentials
        self._host = host
        self._region = region
        self._clock = clock
        self._state = _State.FIRST

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        state, self._state = self._state, _State.FAILED
        if state is _State.FIRST and not challenge:
            message = first_message(self._credentials, self._host, self._region, self._clock())
            self._state = _State.ANSWER
            return message
        if state is _State.ANSWER:
            self._check(challenge or b"")
            self._state = _State.COMPLETE
            return None
        raise AuthenticationError("the broker sent a message that AWS_MSK_IAM does not allow")

    def _check(self, answer: bytes) -> None:
        """Raises AuthenticationError unless the response shows that the broker accepted the signature."""
        if not answer:
            raise AuthenticationError("the broker sent an empty response to the signature")
        try:
            said: Any = json.loads(answer[:MAX_RESPONSE_BYTES])
        except (ValueError, RecursionError):
            raise AuthenticationError("the broker's response is not JSON") from None
        version = said.get("version") if isinstance(said, dict) else None
        if version != VERSION:
            raise AuthenticationError(f"the broker's response has another version than {VERSION}, which is not supported")
        if not isinstance(said.get("request-id"), str):
            raise AuthenticationError("the broker's response has no request-id")

    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def principal(self) -> str:
        return self._credentials.key_id


class AwsMskIamMechanism:
    """Signs each login with the credentials of the process, which are looked up and refreshed in the background.

    Threads: the client's.
    """

    name: Final = "AWS_MSK_IAM"

    def __init__(self, config: SecurityConfig, wakeup: Callable[[], None]) -> None:
        """Raises OptionError for a wrong option, or if botocore is not installed."""
        self._tokens = shared_credentials(aws_options(config))
        self._wakeup = wakeup

    def client(self, host: str) -> AwsMskIamClient | None:
        token = self._tokens().get(host, self, self._wakeup)
        return None if token is None else AwsMskIamClient(credentials_in(token)[0], host, credentials_in(token)[1])

    def close(self) -> None:
        """Stops refreshing the credentials, unless another producer uses them."""
        self._tokens().leave(self)
