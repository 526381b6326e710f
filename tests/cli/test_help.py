"""`--help` of every command: what it refers to can be found without a clone of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.errors import DOCS_URL

_DOCS = Path(__file__).parents[2] / "docs"


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, click.Context(inner, info_name=name, parent=context))


HELP = dict(commands(main, click.Context(main, info_name="spark-kafka-sink")))


@pytest.mark.parametrize("command", HELP)
def test_a_page_is_named_by_its_address(command: str) -> None:
    assert not re.findall(r"\S+\.md\b", HELP[command])
    for page in re.findall(rf"{re.escape(DOCS_URL)}/(\S+)\.html", HELP[command]):
        assert (_DOCS / f"{page}.md").exists(), page


@pytest.mark.parametrize(("command", "page"), [("broker", "broker"), ("transactions", "transactions")])
def test_an_address_is_whole(command: str, page: str) -> None:
    """A terminal wraps at hyphens too."""
    assert f"See {DOCS_URL}/{page}.html" in HELP[f"spark-kafka-sink {command}"]


@pytest.mark.parametrize("command", [name for name in HELP if "--bootstrap-servers" in HELP[name]])
def test_brokers_are_named_alike_by_every_command(command: str) -> None:
    assert "--bootstrap-servers HOST:PORT,... Brokers to connect to first. [default: localhost:9092]" in " ".join(
        HELP[command].split()
    )


@pytest.mark.parametrize("command", ["check", "topics list", "transactions list"])
def test_an_address_without_its_option_is_answered_with_it(command: str) -> None:
    done = CliRunner().invoke(main, [*command.split(), "localhost:9092"])
    assert done.exit_code == 2
    assert "(localhost:9092). Write --bootstrap-servers localhost:9092" in " ".join(done.stderr.split())
