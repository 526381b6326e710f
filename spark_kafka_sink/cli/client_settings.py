"""The client of a command: its settings, and the text of its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from spark_kafka_sink.cli.shared_options import LOCAL_BROKER, warn
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.connection_probe import NOT_REACHED
from spark_kafka_sink.errors import DeadlineError, KafkaSinkError, OptionError
from spark_kafka_sink.options.option import HARMLESS, nearest, why_refused
from spark_kafka_sink.options.producer_options import OPTIONS, ProducerConfig, producer_config
from spark_kafka_sink.options.security_config import SECURITY_NAMES, is_security_option, security_warnings
from spark_kafka_sink.properties import lines_without_sign, parse_properties

_TRIES: Final = 3
"""Number of addresses that the time suffices for if a firewall drops their packets."""

_FILE: Final = "--command-config"
# The same files serve tools that use Java's admin client.
_IGNORED: Mapping[str, str] = {**HARMLESS, "default.api.timeout.ms": "use --timeout instead"}


@contextmanager
def cluster_client(bootstrap_servers: str | None, command_config: Path | None, timeout_s: float) -> Iterator[ClusterClient]:
    """Yields a client with the settings of `client_config`. Each error becomes one line without a traceback.

    timeout_s: for all brokers together. Raises click.BadParameter for an option, and click.ClickException for any other error.
    """
    config = client_config(bootstrap_servers, command_config)
    setup_ms = max(1, round(timeout_s * 1000 / _TRIES))
    config = replace(
        config,
        connection_setup_timeout_ms=min(config.connection_setup_timeout_ms, setup_ms),
        connection_setup_timeout_max_ms=min(config.connection_setup_timeout_max_ms, setup_ms),
    )
    with ClusterClient(config) as client:
        try:
            client.prepare()
        except OptionError as error:
            raise _wrong(error.message) from None
        except KafkaSinkError as error:
            raise click.ClickException(str(error)) from None
        try:
            yield client
        except DeadlineError as error:
            advice = "" if client.known().nodes else f"; {NOT_REACHED}"
            raise click.ClickException(f"{error}{advice}") from None
        except KafkaSinkError as error:
            raise click.ClickException(str(error)) from None


def client_config(bootstrap_servers: str | None, command_config: Path | None) -> ProducerConfig:
    """Returns the client settings from the file of --command-config.

    Without `bootstrap_servers`, the file's value counts, then LOCAL_BROKER.

    Raises click.BadParameter, whose message never contains a value from the file, which may be a password.
    """
    settings = {"client.id": "spark-kafka-sink-cli", "bootstrap.servers": LOCAL_BROKER}
    settings |= {} if command_config is None else settings_of(command_config)
    try:
        config = producer_config(settings if bootstrap_servers is None else {**settings, "bootstrap.servers": bootstrap_servers})
    except OptionError as error:
        hint = "--bootstrap-servers" if error.facts.get("option") == "bootstrap.servers" else _FILE
        raise click.BadParameter(error.message, param_hint=hint) from None
    for text in security_warnings(config.security):
        warn(text)
    return config


def settings_of(path: Path) -> dict[str, str]:
    """Returns the settings by name. Java's other settings are ignored, or refused if ignoring them would change the outcome."""
    known = {}
    for name, value in _properties(path).items():
        if name in OPTIONS or is_security_option(name):
            known[name] = value
        elif (reason := why_refused(name)) is not None:
            raise _wrong(f"{path}: option {name}: {reason}")
        elif name in _IGNORED:
            warn(f"{path}: option {name} is ignored: {_IGNORED[name]}")
        else:
            raise _wrong(f"{path}: unknown option {name}{nearest(name, [*OPTIONS, *SECURITY_NAMES, *_IGNORED])}")
    return known


def _properties(path: Path) -> dict[str, str]:
    """Reads a properties file like Java, but refuses lines without `=`, which Kafka's tools read as empty options."""
    try:
        text = path.read_text(encoding="utf-8")
        found = parse_properties(text)
    except OSError as error:
        raise _wrong(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _wrong(f"{path} cannot be read: it is not UTF-8") from None
    except ValueError as error:
        raise _wrong(f"{path}: {error}") from None
    for number in lines_without_sign(text):
        raise _wrong(f"line {number} of {path} must have the form name=value")
    return found


def _wrong(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint=_FILE)
