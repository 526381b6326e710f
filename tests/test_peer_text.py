"""What another machine sent, as an error shows it."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.peer_text import quoted


@pytest.mark.parametrize(
    ("text", "secrets", "shown"),
    [
        ("plain words", (), "plain words"),
        (b"bytes \xff", (), "bytes \ufffd"),
        (" two\r\nlines\x1b[31m ", (), "two lines [31m"),
        ("x" * 301, (), "x" * 300 + "..."),
        ("x" * 300, (), "x" * 300),
        ("pass-word is wrong: pass-word", ("pass-word",), "[hidden] is wrong: [hidden]"),
        ("secret-and-more", ("secret", "secret-and-more"), "[hidden]"),
        ("words", ("",), "words"),
        ('sent {"password": "a\\"b\\u00e9cdefg"}', ('a"b\u00e9cdefg',), 'sent {"password": "[hidden]"}'),
        (
            "S3cret%3C%C3%A9 s3cret&lt;é 7333637265743CC3A9",
            ("s3cret<é",),
            "[hidden] [hidden] [hidden]",
        ),
        ("czNjcmV0PMOp s3cret<Ã©", ("s3cret<é",), "[hidden] [hidden]"),
        ("the end of he", ("he",), "the end of [hidden]"),
        ("y" * 295 + "needle", ("needle",), "y" * 295 + "[hidd..."),
    ],
)
def test_one_printable_line_without_secrets(text: str | bytes, secrets: tuple[str, ...], shown: str) -> None:
    assert quoted(text, secrets) == shown


def test_it_is_as_long_as_its_maker_wants() -> None:
    assert quoted("a" * 50, most=40) == "a" * 40 + "..."
    assert quoted("\r\n" * 30 + "a", most=40) == "a"


# What holds for every error of this package


def test_what_a_terminal_would_obey_is_written_out() -> None:
    """A broker's name of a config, for example, is any text."""
    error = KafkaSinkError("config co\x1b[2Jpact\x07 of topic '\u202ex': ü, 漢\nand a second line")

    assert error.message == r"config co\x1b[2Jpact\x07 of topic '\u202ex': ü, 漢" + "\nand a second line"
    assert str(pickle.loads(pickle.dumps(error))) == f"[KAFKA_SINK] {error.message}"
