"""The generators of docs/api.md and docs/cli.md write what docstrings and commands say, as Markdown."""

from __future__ import annotations

import click
import griffe
import pytest

from docs.api_page import _summary, _text
from docs.cli_page import _described, cli_page
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.errors import DOCS_URL

DOCSTRINGS = '''
def send(topic: str, value: bytes | None = None) -> int:
    """Sends one record.

    It returns at once. topic: where to.

    - an item
    - another one

    Args:
        topic: name of the topic,
            which must exist.
        value: `None` makes a tombstone.

    Returns:
        The number of <bytes>.

    Raises:
        ValueError: if the topic is empty.

    Example:
        >>> send("a")
        1
    """

class Failed(Exception):
    """Something failed.

    Attributes:
        code: stable code.
    """
'''


def test_sections_of_a_docstring_become_lists() -> None:
    with griffe.temporary_visited_module(DOCSTRINGS) as module:
        send = module["send"]
        assert isinstance(send, griffe.Function)
        text = _text(send)

    assert text.startswith("Sends one record.\n")
    assert "\n- `topic`: where to.\n" in text
    assert "\n- an item\n- another one\n" in text
    assert "- `topic`: name of the topic, which must exist.\n- `value`: `None` makes a tombstone.\n" in text
    assert "Returns: The number of \\<bytes>.\n" in text
    assert "Raises:\n\n- `ValueError`: if the topic is empty.\n" in text


def test_an_example_in_a_docstring_becomes_a_code_block() -> None:
    with griffe.temporary_visited_module(
        'def f():\n    """Runs.\n\n    Example::\n\n        with a:\n            b()\n    """\n'
    ) as module:
        function = module["f"]
        assert isinstance(function, griffe.Function)
        text = _text(function)

    assert text == "Runs.\n\nExample:\n\n```python\nwith a:\n    b()\n```\n"


def test_the_table_of_errors_has_summaries_only() -> None:
    with griffe.temporary_visited_module(DOCSTRINGS) as module:
        failed = module["Failed"]
        assert isinstance(failed, griffe.Class)
        assert _summary(failed).strip() == "Something failed."


@click.command()
@click.argument("name")
@click.option(
    "-p", "--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help=f"Port; see {DOCS_URL}/broker.html."
)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting.")
@click.option("--file", required=True, help="A file.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def example(name: str, port: int, settings: tuple[str, ...], file: str, yes: bool) -> None:
    """Do something
    on two lines.

    \b
    kept
      as it is
    """


def test_a_command_is_described_with_its_options() -> None:
    assert _described(example, click.Context(example, info_name="spark-kafka-sink example")).strip() == (
        "## example\n\n"
        "```\nspark-kafka-sink example [OPTIONS] NAME\n```\n\n"
        "Do something on two lines.\n\n"
        "```\nkept\n  as it is\n```\n\n"
        "| option | default | description |\n| --- | --- | --- |\n"
        "| `-p N`, `--port N` | `9092` | Port; see [broker](broker.md). |\n"
        "| `--set NAME=VALUE` |  | A setting. Can be given several times. |\n"
        "| `--file TEXT` | required | A file. |\n"
        "| `--yes` |  | Do not ask. |"
    )


@pytest.mark.parametrize("name", main.commands)
def test_each_command_has_a_section(name: str) -> None:
    assert f"\n## {name}\n" in cli_page()
