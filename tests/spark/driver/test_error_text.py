"""Errors of other programs in the log have no passwords, and move no cursor."""

from __future__ import annotations

import pytest

from spark_kafka_sink.options.secret import HIDDEN
from spark_kafka_sink.spark.driver.error_text import error_text
from tests.planted_secrets import MARK


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"cannot reach http://user:{MARK}@host/x now", "cannot reach http://host/x now"),
        (f"http://user:pa@{MARK}@host/x", "http://host/x"),
        (f"http://user:pa/{MARK}@host/x", "http://host/x"),
        (f"http://user:pa?{MARK}@host/x", "http://host/x"),
        (f"passed http://me:{MARK}/y7kq@h:1: 'me:{MARK}' is no host", f"passed http://h:1: '{HIDDEN}:{HIDDEN}' is no host"),
        (f"Max retries exceeded with url: /api?api-key={MARK} (why)", "Max retries exceeded with url: /api?... (why)"),
        ("\x1b[31mred\x07\n two", "\\x1b[31mred\\x07 two"),
    ],
)
def test_a_text_loses_logins_queries_and_control_characters(text: str, expected: str) -> None:
    assert error_text(ValueError(text)) == expected


def test_a_long_text_is_cut() -> None:
    assert len(error_text(ValueError("x" * 10_000))) == 300
    assert error_text(ValueError("/" * 10_000_000)) == ""
    cut = f"at http://user:{MARK}{'y' * 10_000}@host"
    assert error_text(ValueError(cut)) == "at http:"
