"""The user and the password of PLAIN and SCRAM, from either kind of options."""

from __future__ import annotations

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.jaas import jaas_of


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
