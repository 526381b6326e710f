"""Options that commands share. Those of all commands of a group are passed on as one object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import click

from spark_kafka_sink.installation import check_libraries

Command = Callable[..., None]

LOCAL_BROKER: Final = "localhost:9092"
"""Address of `spark-kafka-sink broker`, and of Kafka on the same machine."""

BOOTSTRAP_SERVERS: Final = click.option(
    "--bootstrap-servers", metavar="HOST:PORT,...", help=f"Brokers to connect to first.  [default: {LOCAL_BROKER}]"
)
"""Its value is None without the option, because a file of --command-config may name the brokers as well."""

COMMAND_CONFIG: Final = click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties file with the client's settings, without the prefix `kafka.`, as Kafka's own tools take it.",
)
JSON_OBJECT: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
JSON_LINES: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of text.")


def timeout(default: float, text: str) -> Callable[[Any], Any]:
    """Returns the option --timeout, whose value is `timeout_s`. text: its help."""
    seconds = click.FloatRange(0, 3600, min_open=True)
    return click.option("--timeout", "timeout_s", default=default, show_default=True, type=seconds, help=text)


def set_option(text: str) -> Callable[[Any], Any]:
    """Returns the option --set, whose values `pairs` reads. text: its help."""
    return click.option("-o", "--set", "settings", metavar="NAME=VALUE", multiple=True, help=text)


@dataclass(frozen=True, slots=True)
class TopicsOptions:
    """The options of all commands of `topics`. bootstrap_servers: None for the default."""

    bootstrap_servers: str | None
    command_config: Path | None
    timeout_s: float
    as_json: bool


@dataclass(frozen=True, slots=True)
class TransactionsOptions:
    """The options of all commands of `transactions`.

    bootstrap_servers: None for the default. commit_log_partitions: None for all of the topic. timeout_s: per query or job.
    """

    bootstrap_servers: str | None
    prefix: str
    commit_log_topic: str
    commit_log_partitions: int | None
    command_config: Path | None
    timeout_s: float
    as_json: bool


def with_options(options: Sequence[Callable[[Any], Any]], holder: type) -> Callable[[Command], Command]:
    """Returns a decorator that adds click options to a command, and passes their values on as its first argument.

    Args:
        options: the decorators that click.option returns, in reverse order of the help.
        holder: the dataclass with a field for each of the options.
    """

    def decorator(command: Command) -> Command:
        def with_holder(**values: Any) -> None:
            check_libraries()  # ahead of the modules that import them, so that a broken library is one line
            command(holder(**{each.name: values.pop(each.name) for each in fields(holder)}), **values)

        with_holder.__name__, with_holder.__doc__ = command.__name__, command.__doc__
        decorated: Any = with_holder
        for option in options:
            decorated = option(decorated)
        # click stores options in reverse order. A command's own options come first in its help.
        decorated.__click_params__ += getattr(command, "__click_params__", [])
        result: Command = decorated
        return result

    return decorator


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the values of an option that may be repeated, by name. Raises click.BadParameter for one without a name or `=`."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            # Not the text itself: what is left of a mistyped password is one.
            raise click.BadParameter("must be NAME=VALUE", param_hint=option)
        found[name.strip()] = value
    return found


def warn(text: str) -> None:
    """Prints a warning to stderr, separately from the log."""
    print(f"Warning: {text}", file=sys.stderr, flush=True)
