"""The user and the password of PLAIN and SCRAM, from either kind of options."""

from __future__ import annotations

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.jaas import JaasConfig, parse_jaas
from spark_kafka_sink.options.secret import HiddenValues, Secret, is_reference, resolve
from spark_kafka_sink.options.security_config import SecurityConfig


def user_and_password(config: SecurityConfig) -> tuple[str, Secret]:
    """Returns the user and the password from `sasl.username` and `sasl.password`, or from the JAAS line.

    Call it for each login: references are resolved now, so the next login uses a rotated password.

    Raises:
        OptionError: One of them is missing, or is a reference that cannot be read in this process.
    """
    jaas = jaas_of(config)
    if jaas is not None:
        if not {"username", "password"} <= jaas.options.keys():
            raise OptionError(
                f'option sasl.jaas.config: {jaas.login_module} requires username="..." and password="..."',
                option="sasl.jaas.config",
            )
        return jaas.options["username"], Secret(jaas.options["password"], None)
    if config.sasl_username is None or config.sasl_password is None:
        missing = "sasl.username" if config.sasl_username is None else "sasl.password"
        raise OptionError(f"option {missing}: it is not set, but {config.sasl_mechanism} requires it", option=missing)
    return resolve(config.sasl_username), Secret(config.sasl_password.reveal(), None)


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
