"""Makes docs/cli.md from the commands that click knows, so that the page and `--help` cannot differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc

import click

from docs.markdown import plain, table
from spark_kafka_sink.cli.main import main

NAME = "spark-kafka-sink"
# click's names of ranges, which are no words.
_VALUES = {"INTEGER": "N", "INTEGER RANGE": "N", "FLOAT RANGE": "NUMBER"}
_HEAD = ("option", "description")
HEAD = f"""# Command line

`{NAME} COMMAND --help` says more about a command. So do the pages on the [broker](broker.md), the
[check](check.md) of settings, [topics](topics.md), [transactions](transactions.md), and how to
[verify](verifying.md) a topic.
"""


def cli_page() -> str:
    context = click.Context(main, info_name=NAME)
    return HEAD + "".join(_described(command, inner) for command, inner in commands(main, context))


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yields each command below a group, and those below it, as `--help` orders them."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def _described(command: click.Command, context: click.Context) -> str:
    title = context.command_path.removeprefix(f"{NAME} ")
    pieces = command.collect_usage_pieces(context)
    has_arguments = pieces[1:] and not isinstance(command, click.Group)
    usage = f"```\n{context.command_path} {' '.join(pieces)}\n```\n" if has_arguments else ""
    group = context.parent
    shared = _shared(group) if group is not None and group.parent is not None else []
    is_repeated = bool(group and command.epilog and command.epilog in (group.command.epilog or ""))
    epilog = None if is_repeated else command.epilog
    heading = f"\n{'###' if shared else '##'} {title}\n"
    parts = [heading, *([usage] if usage else []), *_paragraphs(f"{command.help}\n\n{epilog or ''}")]
    if isinstance(command, click.Group):
        parts += [f"Each of these commands has these options:\n\n{table(_HEAD, _shared(context))}"]
    elif rows := [row for row in _rows(command, context) if row not in shared]:
        parts.append(table(_HEAD, rows))
    return "\n".join(parts)


def _rows(command: click.Command, context: click.Context) -> list[list[str]]:
    return [_row(parameter, context) for parameter in command.params if isinstance(parameter, click.Option)]


def _shared(context: click.Context) -> list[list[str]]:
    """Returns the options that all commands of a group have, with the same text."""
    assert isinstance(context.command, click.Group)
    first, *others = (_rows(command, inner) for command, inner in commands(context.command, context))
    return [row for row in first if all(row in rows for rows in others)]


def _paragraphs(text: str | None) -> Iterator[str]:
    """Yields the first paragraph of a help text, and the one about exit codes."""
    first, *others = re.split(r"\n\s*\n", cleandoc(text or ""))
    for paragraph in (first, *(other for other in others if other.startswith("Exit"))):
        yield f"{_text(paragraph)}\n"


def _text(text: str) -> str:
    return plain(" ".join(text.split()))


def _row(option: click.Option, context: click.Context) -> list[str]:
    metavar = option.make_metavar(context)
    value = "" if option.is_flag or option.count else f" {_VALUES.get(metavar, metavar)}"
    names = ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))
    help_text = option.help or ""
    repeated = " Can be given several times." if option.multiple and "repeated" not in help_text else ""
    return [names, _text(help_text) + repeated + _default(option, context)]


def _default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return " [required]"
    extra = option.get_help_extra(context).get("default")
    return f" [default: `{extra}`]" if extra and not option.is_flag else ""
