"""Properties files, as Java reads them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.properties import parse_properties
from tests.as_java import as_java
from tests.every import every

FILES = {
    "a=1\nb: 2\nc 3\n": {"a": "1", "b": "2", "c": "3"},
    "# no = value\n  ! neither\n\n \t \na=1": {"a": "1"},
    "  a = 1  \n": {"a": "1  "},
    "a=1\na=2": {"a": "2"},
    "a": {"a": ""},
    "a\\=b\\:c\\ d=e=f:g": {"a=b:c d": "e=f:g"},
    "a=one \\\n   two\\\n\tthree": {"a": "one twothree"},
    "a=one\\\\\nb=2": {"a": "one\\", "b": "2"},
    "a=1\\\n": {"a": "1"},
    "a=1\\": {"a": "1"},
    "a=\\t\\n\\r\\f\\q\\\"\\'": {"a": "\t\n\r\fq\"'"},
    "a=\\u00e9\\u20AC\\ud83d\\ude00": {"a": "é€😀"},
    "pässwört=gehéim€😀": {"pässwört": "gehéim€😀"},
    "a=1\r\nb=2\rc=3": {"a": "1", "b": "2", "c": "3"},
    "=1": {"": "1"},
    "a==1": {"a": "=1"},
    "a = = 1": {"a": "= 1"},
    "a=1\\\n# 2": {"a": "1# 2"},
    "a=\x0b1\x85\u20282": {"a": "\x0b1\x85\u20282"},
    "": {},
}


@every("text", FILES)
def test_a_file_is_read(text: str) -> None:
    assert parse_properties(text) == FILES[text]


@pytest.mark.parametrize("text", ["a=\\u12", "b=1\na=\\u12g4secret", "a=\\u 123"])
def test_a_broken_escape_is_named_by_its_line_only(text: str) -> None:
    with pytest.raises(ValueError, match=r"^line \d: \\u needs four hexadecimal digits$"):
        parse_properties(text)


@pytest.mark.java
def test_java_reads_the_same() -> None:
    refused = ["a=\\u12", "a=\\u12g4"]
    assert as_java("properties", [*FILES, *refused]) == [*FILES.values(), None, None]
