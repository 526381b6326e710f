"""Opens the mechanism that the settings name."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.credentials import user_and_password
from spark_kafka_sink.security.jaas import jaas_of
from spark_kafka_sink.security.sasl.mechanism import SaslMechanism
from spark_kafka_sink.security.sasl.plain import PLAIN, CredentialsSource, PlainMechanism
from spark_kafka_sink.security.sasl.scram import ScramMechanism
from spark_kafka_sink.security.sasl.scram_messages import SCRAM_HASHES


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
    # Imported where they are used: an HTTP client takes 40 ms to import, and others need packages that are often missing.
    if name == "OAUTHBEARER":
        from spark_kafka_sink.security.sasl.token_sources import oauthbearer_mechanism

        return oauthbearer_mechanism(config, wakeup)
    if name == "GSSAPI":
        from spark_kafka_sink.security.sasl.gssapi_client import GssapiMechanism

        return GssapiMechanism(config, wakeup)
    if name == "AWS_MSK_IAM":
        from spark_kafka_sink.security.sasl.aws_msk_iam import AwsMskIamMechanism

        return AwsMskIamMechanism(config, wakeup)
    known = ", ".join((PLAIN, *SCRAM_HASHES, "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"))
    raise OptionError(f"option sasl.mechanism: {name!r} is not supported, must be one of {known}", option="sasl.mechanism")


def _credentials(config: SecurityConfig) -> CredentialsSource:
    user_and_password(config)  # raises for missing options now, not at the first connection

    def now() -> tuple[str, Secret]:
        try:
            return user_and_password(config)
        except OptionError as error:  # a file with the password has gone
            raise AuthenticationError(error.message) from None

    return now
