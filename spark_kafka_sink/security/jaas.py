"""The login line of `sasl.jaas.config`, parsed and with its references resolved."""

from __future__ import annotations

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.jaas import JaasConfig, parse_jaas
from spark_kafka_sink.options.secret import HiddenValues, is_reference
from spark_kafka_sink.options.security_config import SecurityConfig

__all__ = ["JaasConfig", "jaas_of", "parse_jaas"]


def jaas_of(config: SecurityConfig) -> JaasConfig | None:
    """Returns the login line with its references resolved now, in this process; None if there is none.

    The line is parsed before references inside its quotes are resolved, so a password may contain quotes and backslashes. A
    reference that stands for the whole line is resolved first.

    Raises:
        OptionError: The line cannot be parsed, is for another mechanism, or has a reference that cannot be resolved.
    """
    secret = config.sasl_jaas_config
    if secret is None:
        return None
    if is_reference(secret.unresolved()):
        parsed = parse_jaas(secret.reveal())
        if config.sasl_mechanism not in parsed.mechanisms:
            raise OptionError(
                f"option sasl.jaas.config: {parsed.login_module} is for {' or '.join(parsed.mechanisms)}, but sasl.mechanism is"
                f" {config.sasl_mechanism}",
                option="sasl.jaas.config",
            )
        return parsed
    parsed = parse_jaas(secret.unresolved())
    options = {name: secret.with_text(value).reveal() for name, value in parsed.options.items()}
    return JaasConfig(parsed.login_module, HiddenValues(options))
