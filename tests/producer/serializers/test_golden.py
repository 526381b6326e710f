"""Every serializer of Kafka writes the bytes that Java's writes, for one value and for a column."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import OptionError, SerializationError
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.producer.serializers.serializer_table import JAVA_PACKAGE
from spark_kafka_sink.producer.serializers.text import TextEncoder, encoder
from tests.every import every
from tests.producer.serializers.golden_bytes import ARROW, BYTES, GoldenCharset, GoldenValue, golden, parse, run_java
from tests.producer.serializers.making import column_bytes, serializer

GOLDEN = golden()
digests: dict[str, str] = {}
HALF_PAIRS = range(0xD800, 0xE000)

Case = tuple[str, str | None]


def cases(values: tuple[GoldenValue, ...]) -> dict[Case, list[GoldenValue]]:
    found: dict[Case, list[GoldenValue]] = {}
    for one in values:
        found.setdefault((one.serializer, one.encoding), []).append(one)
    return found


VALUES, LISTS = cases(GOLDEN.values), cases(GOLDEN.lists)


def made(case: Case, **settings: object) -> Serializer:
    name, encoding = case
    encodings = {} if encoding is None else {"serializer__encoding": encoding}
    return serializer(f"{JAVA_PACKAGE}{name}Serializer", **encodings, **settings)


def made_list(case: Case) -> Serializer:
    inner = f"{JAVA_PACKAGE}Serdes${case[0]}Serde"
    return made(("List", case[1]), default__list__value__serde__inner=inner)


def in_arrow(value: Any) -> Any:
    """UUIDs as text; other values as they are."""
    if isinstance(value, list):
        return [in_arrow(element) for element in value]
    return str(value) if hasattr(value, "hex") and not isinstance(value, bytes | float) else value


def has_half_pair(value: Any) -> bool:
    return isinstance(value, str) and any(ord(character) in HALF_PAIRS for character in value)


@every("case", VALUES)
def test_single_values_have_javas_bytes(case: Case) -> None:
    for one in VALUES[case]:
        if has_half_pair(one.value):  # Java writes a replacement
            with pytest.raises(SerializationError, match=r"text with a lone surrogate at [01] cannot be encoded as "):
                made(case).serialize("topic", one.value)
        else:
            assert made(case).serialize("topic", one.value) == one.bytes, one


@every("case", VALUES)
def test_columns_have_javas_bytes(case: Case) -> None:
    values = [one for one in VALUES[case] if not has_half_pair(one.value)]  # Arrow's text has none
    column = pa.array([in_arrow(one.value) for one in values], ARROW[case[0]])
    assert column_bytes(made(case), column) == [one.bytes for one in values]


@every("case", LISTS)
def test_single_lists_have_javas_bytes(case: Case) -> None:
    for one in LISTS[case]:
        assert made_list(case).serialize("topic", one.value) == one.bytes, one


@every("case", LISTS)
@every("kind", [pa.list_, pa.large_list])
def test_columns_of_lists_have_javas_bytes(case: Case, kind: Any) -> None:
    column = pa.array([in_arrow(one.value) for one in LISTS[case]], kind(ARROW[case[0]]))
    assert column_bytes(made_list(case), column) == [one.bytes for one in LISTS[case]]


@cache
def every_character() -> pa.Array:
    points = [*(point for point in range(0x10100) if not 0xD800 <= point <= 0xF8FF), 0x1F600, 0x2000B]
    return pa.array([chr(point) for point in points], pa.string())


@every("charset", GOLDEN.charsets)
def test_an_encoding_is_javas_of_that_name_or_is_refused(charset: GoldenCharset) -> None:
    """For every character but those for private use."""
    for name in (charset.name, *charset.aliases, charset.name.lower()):
        if charset.name not in KEPT:
            with pytest.raises(OptionError, match="is not supported"):
                encoder(name, "serializer.encoding")
            continue
        found = encoder(name, "serializer.encoding")
        digests[found.name] = digests.get(found.name) or digest(found)
        assert digests[found.name] == charset.digest, name


def digest(found: TextEncoder) -> str:
    written = found.encode_column(every_character()).cast(pa.binary())
    return hashlib.sha256(b"".join(written.to_pylist())).hexdigest()


KEPT = {*(f"UTF-{bits}{order}" for bits in (16, 32) for order in ("", "BE", "LE")), "UTF-8", "US-ASCII", "ISO-8859-1"}


@pytest.mark.whole("starts Java, whose golden file changes with its release only; the others here compare with that file")
@pytest.mark.java
def test_the_golden_file_is_what_java_prints() -> None:
    printed, kept = run_java(), BYTES.read_text()
    # Encodings come and go with Java; the rest is Kafka's alone.
    same = [[line for line in text.splitlines() if not line.startswith("charset ")] for text in (printed, kept)]
    assert same[0] == same[1]
    digests = {charset.name: charset.digest for charset in parse(printed).charsets}
    assert {name: digests[name] for name in KEPT} == {
        charset.name: charset.digest for charset in GOLDEN.charsets if charset.name in KEPT
    }
