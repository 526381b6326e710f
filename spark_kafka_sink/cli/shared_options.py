"""Options that commands share. Those of all commands of a group are passed on as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
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


def with_options(options: Sequence[Callable[[Any], Any]], holder: Callable[[], type]) -> Callable[[Command], Command]:
    """Returns a decorator that adds click options to a command, and passes their values on as its first argument.

    Args:
        options: the decorators that click.option returns, in reverse order of the help.
        holder: returns the dataclass with a field for each of the options. It is called when a command runs, so it may import.
    """

    def decorator(command: Command) -> Command:
        def with_holder(**values: Any) -> None:
            check_libraries()  # ahead of the modules that import them, so that a broken library is one line
            made = holder()
            command(made(**{each.name: values.pop(each.name) for each in fields(made)}), **values)

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
