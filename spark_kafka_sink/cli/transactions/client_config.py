"""A client's settings from a file of properties, as Kafka's own tools take them with --command-config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from spark_kafka_sink.cli.log_format import warn
from spark_kafka_sink.cli.transactions.settings import ConnectionOptions
from spark_kafka_sink.config import OPTIONS, ProducerConfig, producer_config
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.spark.options import HARMLESS, ONLY_PLAINTEXT, why_refused

_FILE = "--command-config"
# Files are shared with tools that are Java's admin clients.
_IGNORED: Mapping[str, str] = {**HARMLESS, "default.api.timeout.ms": "--timeout says it"}


def client_config(options: ConnectionOptions) -> ProducerConfig:
    """click.BadParameter says what is wrong with which option; never a value of the file, which may be a password."""
    settings = {} if options.command_config is None else _from_file(options.command_config)
    try:
        return producer_config({"client.id": "spark-kafka-sink-cli", **settings, "bootstrap.servers": options.bootstrap_servers})
    except OptionError as error:
        hint = "--bootstrap-servers" if error.facts.get("option") == "bootstrap.servers" else _FILE
        raise click.BadParameter(error.message, param_hint=hint) from None


def _from_file(path: Path) -> dict[str, str]:
    """What a client uses of it, by name; names that would change what is done are refused, others that Java has are ignored."""
    known = {}
    for name, value in _properties(path).items():
        if name in OPTIONS:
            known[name] = value
        elif name == "security.protocol":
            if value.upper() != "PLAINTEXT":
                raise _wrong(f"{path}: option {name}: {ONLY_PLAINTEXT}")
        elif (reason := why_refused(name)) is not None:
            raise _wrong(f"{path}: option {name}: {reason}")
        elif name in _IGNORED:
            warn(f"{path}: option {name} is ignored: {_IGNORED[name]}")
        else:
            raise _wrong(f"{path}: unknown option {name}{nearest(name, [*OPTIONS, *_IGNORED, 'security.protocol'])}")
    return known


def _properties(path: Path) -> dict[str, str]:
    """Lines of `name=value` or `name: value`, without Java's escapes and continued lines; # and ! begin a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _wrong(f"{path} cannot be read: {why}") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line[0] in "#!":
            continue
        sign = min((at for at in (line.find("="), line.find(":")) if at > 0), default=-1)
        if sign < 0:
            raise _wrong(f"line {number} of {path} is not name=value")
        found[line[:sign].strip()] = line[sign + 1 :].strip()
    return found


def _wrong(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint=_FILE)
