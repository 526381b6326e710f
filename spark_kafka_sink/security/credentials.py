"""The user and the password of PLAIN and SCRAM, whichever options say them."""

from __future__ import annotations

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.secret import Secret, resolve
from spark_kafka_sink.security.jaas import jaas_of
from spark_kafka_sink.security_config import SecurityConfig


def user_and_password(config: SecurityConfig) -> tuple[str, Secret]:
    """Returns the user and the password of `sasl.username` and `sasl.password`, or of the login line.

    Call it for each login, because references are read now: a rotated password is then used for the next login.

    Raises:
        OptionError: One of them is missing, or is a reference that cannot be read in this process.
    """
    jaas = jaas_of(config)
    if jaas is not None:
        if not {"username", "password"} <= jaas.options.keys():
            raise OptionError(
                f'option sasl.jaas.config: {jaas.login_module} needs username="..." and password="..."', option="sasl.jaas.config"
            )
        return jaas.options["username"], Secret(jaas.options["password"], None)
    if config.sasl_username is None or config.sasl_password is None:
        missing = "sasl.username" if config.sasl_username is None else "sasl.password"
        raise OptionError(f"option {missing}: it is missing, and {config.sasl_mechanism} needs it", option=missing)
    return resolve(config.sasl_username), Secret(config.sasl_password.reveal(), None)
