"""Opens the mechanism that the settings name."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.security.credentials import user_and_password
from spark_kafka_sink.security.jaas import jaas_of
from spark_kafka_sink.security.sasl.mechanism import SaslMechanism
from spark_kafka_sink.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerMechanism
from spark_kafka_sink.security.sasl.plain import PLAIN, CredentialsSource, PlainMechanism
from spark_kafka_sink.security.sasl.scram import ScramMechanism
from spark_kafka_sink.security.sasl.scram_messages import SCRAM_HASHES
from spark_kafka_sink.security.sasl.token_sources import extensions_of, open_tokens
from spark_kafka_sink.security_config import SecurityConfig


def open_mechanism(config: SecurityConfig, wakeup: Callable[[], None]) -> SaslMechanism:
    """Returns the mechanism of `sasl.mechanism` with its settings. Nothing is sent, fetched or started yet.

    Args:
        config: the settings, with a protocol that uses SASL.
        wakeup: ends the wait of the client's thread; it is called from another thread, when a token is there or has failed.

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
    if name == OAUTHBEARER:
        return OAuthBearerMechanism(open_tokens(config), extensions_of(config), wakeup)
    # These need packages that few have installed.
    if name == "GSSAPI":
        return _made("gssapi_client", "GssapiMechanism", config)
    if name == "AWS_MSK_IAM":
        return _made("aws_msk_iam", "AwsMskIamMechanism", config)
    known = ", ".join((PLAIN, *SCRAM_HASHES, OAUTHBEARER, "GSSAPI", "AWS_MSK_IAM"))
    raise OptionError(f"option sasl.mechanism: {name!r} is not one of {known}", option="sasl.mechanism")


def _credentials(config: SecurityConfig) -> CredentialsSource:
    user_and_password(config)  # what is missing is said now, and not at the first connection

    def now() -> tuple[str, Secret]:
        try:
            return user_and_password(config)
        except OptionError as error:  # a file with the password has gone
            raise AuthenticationError(error.message) from None

    return now


def _made(module: str, name: str, config: SecurityConfig) -> SaslMechanism:
    made: SaslMechanism = getattr(importlib.import_module(f"spark_kafka_sink.security.sasl.{module}"), name)(config)
    return made
