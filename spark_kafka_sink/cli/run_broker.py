"""`spark-kafka-sink broker`: runs an EmbeddedBroker until a signal arrives."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import click

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_server import ANYBODY
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.registry.embedded_registry import EmbeddedRegistry
from spark_kafka_sink.broker.server_properties import config_from
from spark_kafka_sink.cli.shared_options import pairs, warn
from spark_kafka_sink.errors import KafkaSinkError

CA_FILE: Final = "ca.pem"
CLIENT_FILE: Final = "client.pem"
_MARK: Final = "# Written by `spark-kafka-sink broker`"
"""The start of both files. A file without it was not made here and may hold the only copy of a key."""
_FIRST_LINE: Final = f"{_MARK} at each start. For tests only.\n"


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of the command line."""

    port: int
    host: str
    advertised_host: str | None
    brokers: int
    data_dir: Path | None
    like: str | None
    settings: Sequence[str]
    sasl_users: Path | None
    tls: Path | None
    acls: Sequence[str]
    registry_port: int | None
    verbose: bool


def run_broker(**given: Any) -> NoReturn:
    """Runs the broker. Exits with 0 after SIGTERM, 130 after Ctrl+C, 1 if it cannot start, 2 for invalid options.

    given: the fields of BrokerOptions.
    """
    options = BrokerOptions(**given)
    config = _config(options)
    _check_folder(options)
    broker = _broker(options, config)
    log_to(sys.stderr, verbose=options.verbose)
    _warn_of_strangers(options, config)
    ended = _Signals()
    _start(broker, options)
    registry = None
    try:
        registry = _registry(options)
        _write_certificates(broker, options)
        click.echo(ready_line(broker, options, None if registry is None else registry.url))
        number = ended.wait()
    finally:
        if registry is not None:
            registry.stop()
        broker.stop()
    sys.exit(0 if number == signal.SIGTERM else 128 + number)


def _broker(options: BrokerOptions, config: BrokerConfig) -> EmbeddedBroker:
    advertised, uses_tls = _advertised(options), options.tls is not None
    try:
        return EmbeddedBroker(options.brokers, port=options.port, config=config, advertised=advertised, tls=uses_tls)
    except KafkaSinkError as error:
        raise click.ClickException(error.message) from None


def _registry(options: BrokerOptions) -> EmbeddedRegistry | None:
    """Starts the registry if there should be one."""
    if options.registry_port is None:
        return None
    registry = EmbeddedRegistry(port=options.registry_port)
    try:
        registry.start()
    except OSError as error:
        text = f"the schema registry could not listen on 127.0.0.1, port {options.registry_port}: {error.strerror or error}"
        raise click.ClickException(f"{text}; set --registry-port to another port, or to 0 for any free one") from None
    return registry


def _check_folder(options: BrokerOptions) -> None:
    for path in [] if options.tls is None else [options.tls / CA_FILE, options.tls / CLIENT_FILE]:
        if path.exists() and not path.read_bytes().startswith(_MARK.encode()):
            raise click.BadParameter(
                f"{path} exists and was not written by this command: choose another folder", param_hint="--tls"
            )


def _write_certificates(broker: EmbeddedBroker, options: BrokerOptions) -> None:
    """Writes the authority's certificate, and a client certificate with its key that the broker trusts."""
    if options.tls is None or broker.authority is None:
        return
    client = broker.authority.client(ANYBODY)
    try:
        options.tls.mkdir(parents=True, exist_ok=True)
        (options.tls / CA_FILE).write_text(_FIRST_LINE + broker.authority.certificate)
        own = options.tls / CLIENT_FILE
        own.unlink(missing_ok=True)  # an existing one may be readable by others, or a link
        with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(_FIRST_LINE + client.key + client.certificate)
    except OSError as error:
        raise click.ClickException(f"could not write certificates to {options.tls}: {error.strerror}") from None


class _Signals:
    """Catches SIGTERM and Ctrl+C from the start, so that either stops the broker cleanly. A second one kills it."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._number = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def wait(self) -> int:
        while not self._came.wait(60):
            pass
        return self._number

    def _note(self, number: int, _frame: object) -> None:
        self._number = number
        signal.signal(number, signal.SIG_DFL)
        self._came.set()


def _config(options: BrokerOptions) -> BrokerConfig:
    settings = {name: value.strip() for name, value in pairs("--set", options.settings).items()}
    users = {} if options.sasl_users is None else _users(options.sasl_users)
    others: dict[str, Any] = {} if options.like is None else {"like": options.like}
    if options.acls:
        others["acls"] = options.acls
    try:
        return config_from(settings, host=options.host, data_dir=options.data_dir, sasl_users=users, **others)
    except KafkaSinkError as error:
        hint = {"like": "--like", "acls": "--acl"}.get(error.facts.get("option", ""), "--set")
        raise click.BadParameter(error.message, param_hint=hint) from None


def _users(path: Path) -> dict[str, str]:
    """Reads lines of user=password and skips empty lines and comments (#). Errors never contain a line's text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.BadParameter(f"{path} cannot be read: {why}", param_hint="--sasl-users") from None
    users = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, sign, password = line.partition("=")
        if not sign or not name.strip() or not password:
            raise click.BadParameter(f"line {number} of {path} must have the form user=password", param_hint="--sasl-users")
        users[name.strip()] = password
    if not users:
        raise click.BadParameter(f"{path} has no users", param_hint="--sasl-users")
    return users


def _advertised(options: BrokerOptions) -> dict[int, tuple[str, int]]:
    """Returns the advertised addresses by broker id. Without --advertised-host, only a wildcard --host needs them."""
    host = options.advertised_host or (socket.gethostname() if options.host in ("0.0.0.0", "::", "") else None)
    return {} if host is None else dict.fromkeys(range(1, options.brokers + 1), (host, 0))


def _warn_of_strangers(options: BrokerOptions, config: BrokerConfig) -> None:
    try:
        is_loopback = ip_address(options.host).is_loopback
    except ValueError:
        is_loopback = options.host == "localhost"
    uses_tls = options.tls is not None or config.uses_tls
    risk = None if uses_tls else "connections are not encrypted"
    if not (config.uses_sasl or config.has_authorizer or (uses_tls and config.ssl_client_auth == "required")):
        risk = "anyone who can reach it can read and write"
    if not is_loopback and risk is not None:
        warn(f"the broker listens on {options.host or 'every address'}, not only on loopback: {risk}")


def _start(broker: EmbeddedBroker, options: BrokerOptions) -> None:
    try:
        broker.start()
    except OSError as error:
        raise click.ClickException(_why(error, options)) from None
    except KafkaSinkError as error:
        raise click.ClickException(error.message) from None
    except ValueError as error:
        raise click.ClickException(f"could not read the data in {options.data_dir}: {error}") from None


def _why(error: OSError, options: BrokerOptions) -> str:
    last = options.port + options.brokers - 1
    ports = f"port {options.port}" if options.brokers == 1 else f"one of the ports {options.port} to {last}"
    known = {
        errno.EADDRINUSE: f"{ports} is already in use on {options.host}: set --port to another port, or to 0 for any free one",
        errno.EADDRNOTAVAIL: f"{options.host} is not an address of this machine",
    }
    if error.filename is not None:
        return f"could not use the folder {options.data_dir}: {error.strerror}: {error.filename}"
    return known.get(error.errno or 0) or f"could not listen on {options.host}, {ports}: {error.strerror or error}"


def ready_line(broker: EmbeddedBroker, options: BrokerOptions, registry_url: str | None) -> str:
    where = "in memory" if options.data_dir is None else f"in {options.data_dir}"
    shown = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    settings = {name: value for name, value in broker.client_settings.items() if name in shown and value != "PLAINTEXT"}
    if options.tls is not None:
        settings["ssl.truststore.location"] = str(options.tls / CA_FILE)
        if "ssl.keystore.key" in broker.client_settings:
            settings["ssl.keystore.location"] = str(options.tls / CLIENT_FILE)
    if registry_url is not None:
        settings["schema.registry.url"] = registry_url
    listed = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"Ready: {listed}, data {where}; for development and tests, not for production (Ctrl+C stops it)"


# The log: one line per event

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""Attributes of every log record. Any other attribute comes from `extra`."""


def log_to(stream: TextIO, *, verbose: bool) -> None:
    """Sends this package's log and other packages' warnings to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("spark_kafka_sink").setLevel(logging.DEBUG if verbose else logging.INFO)


class KeyValueFormatter(logging.Formatter):
    """Formats each event as `time=... level=INFO message="..." topic=events`. Values with spaces are quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name.removeprefix("spark_kafka_sink."),
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        event |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            event["error"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return " ".join(f"{name}={_text(value)}" for name, value in event.items())


def _text(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)
