"""The client's side of a SASL login, independent of the mechanism."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.credentials import jaas_of, user_and_password
from spark_kafka_sink.security.sasl.scram import PLAIN, SCRAM_HASHES, CredentialsSource, PlainMechanism, ScramMechanism

_STATUS: Final = re.compile(r'"status"\s*:\s*"(invalid_token|invalid_request|insufficient_scope)"')


def refusal(answer: str) -> str:
    """Returns the status in a broker's answer to a token (RFC 7628, 3.2.2), or "" if it is none of the known ones.

    The rest of the answer may repeat the token.
    """
    found = _STATUS.search(answer, 0, 65_536)
    return found[1] if found else ""


class SaslClient(Protocol):
    """One login on one connection. Used by one thread, and not after an error."""

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        """Takes the server's message (None before the first) and returns the next message to send (None if there is none).

        Raises AuthenticationError if the server cannot prove its identity, or sends a message that the mechanism does not allow.
        """

    def is_complete(self) -> bool:
        """Returns whether the server has completed its proofs. A login that ends earlier has failed."""

    def principal(self) -> str:
        """Returns the name of the user, for error texts; empty if unknown."""


class SaslMechanism(Protocol):
    """A mechanism with its settings. Shared by all connections of a client; used by its thread."""

    @property
    def name(self) -> str:
        """Returns the name in SaslHandshake."""

    def client(self, host: str) -> SaslClient | None:
        """Begins a login at a broker's `host`. Never waits: returns None while a token is being fetched.

        `wakeup` (see `OpenMechanism`) is called when to ask again. Raises AuthenticationError if no token is available.
        """

    def close(self) -> None:
        """Ends background work such as renewing a token, unless another client uses it. May be called again."""


class OpenMechanism(Protocol):
    """Makes the mechanism that the settings name: `security/sasl/mechanism.py:open_mechanism`."""

    def __call__(self, config: SecurityConfig, wakeup: Callable[[], None]) -> SaslMechanism: ...


# Imported where they are used: an HTTP client takes 40 ms to import, and others need packages that are often missing.
_LATER: Final[Mapping[str, str]] = {
    "OAUTHBEARER": "token_sources:oauthbearer_mechanism",
    "GSSAPI": "gssapi_client:GssapiMechanism",
    "AWS_MSK_IAM": "aws_msk_iam:AwsMskIamMechanism",
}


def open_mechanism(config: SecurityConfig, wakeup: Callable[[], None]) -> SaslMechanism:
    """Returns the mechanism of `sasl.mechanism` with its settings. Nothing is sent, fetched or started yet.

    Args:
        config: The settings, with a protocol that uses SASL.
        wakeup: Ends the wait of the client's thread. Called from another thread when a token is available or has failed.

    Raises:
        OptionError: A setting is missing or wrong, a reference cannot be read, or a package is not installed.
    """
    name = config.sasl_mechanism
    if name == PLAIN:
        return PlainMechanism(_credentials(config))
    if name in SCRAM_HASHES:
        jaas = jaas_of(config)
        is_token = jaas is not None and jaas.options.get("tokenauth", "").strip().lower() == "true"
        return ScramMechanism(name, _credentials(config), is_token=is_token)
    if name in _LATER:
        module, _, maker = _LATER[name].partition(":")
        opened: SaslMechanism = getattr(importlib.import_module(f"spark_kafka_sink.security.sasl.{module}"), maker)(
            config, wakeup
        )
        return opened
    known = ", ".join((PLAIN, *SCRAM_HASHES, *_LATER))
    raise OptionError(f"option sasl.mechanism: {name!r} is not supported, must be one of {known}", option="sasl.mechanism")


def _credentials(config: SecurityConfig) -> CredentialsSource:
    user_and_password(config)  # raises for missing options now, not at the first connection

    def now() -> tuple[str, Secret]:
        try:
            return user_and_password(config)
        except OptionError as error:  # a file with the password has gone
            raise AuthenticationError(error.message) from None

    return now
