"""docs/options.md leaves out no option of ours, of the sink's or of Java's."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from docs.options_page import options_page
from docs.pages import FOLDER
from spark_kafka_sink.config import OPTIONS
from spark_kafka_sink.option import INT32_MAX
from spark_kafka_sink.producer.partitioners.registry import NAMES
from spark_kafka_sink.producer.serializers.registry import SHORT_NAMES
from spark_kafka_sink.security_config import SECURITY_NAMES
from tests.golden_options import java_options

ROWS = {name: row for row in options_page().splitlines() for name in re.findall(r"^\| `([^`]+)` \|", row)}
PREFIXES = tuple(name.removesuffix("*") for name in ROWS if name.endswith("*"))


@pytest.mark.parametrize("name", java_options())
def test_every_option_of_javas_producer_has_a_row(name: str) -> None:
    assert name in ROWS or name.startswith(PREFIXES)


def test_every_option_of_the_sink_has_a_row() -> None:
    assert {"topic", "delivery.guarantee", "includeHeaders"} <= set(ROWS)


@pytest.mark.parametrize("name", SECURITY_NAMES)
def test_every_option_of_security_has_a_row(name: str) -> None:
    assert name in ROWS


@pytest.mark.parametrize("name", OPTIONS)
def test_a_row_has_what_the_code_uses(name: str) -> None:
    _, _, takes, _, _, does, differs, _ = ROWS[name].split("|")
    option = OPTIONS[name]
    assert (takes.strip(), does.strip(), differs.strip()) == (option.kind.wanted, option.doc, option.differs)


def test_defaults_are_written_as_a_user_writes_them() -> None:
    defaults = {name: [cell.strip() for cell in ROWS[name].split("|")[3:5]] for name in OPTIONS}
    assert defaults["bootstrap.servers"] == ["required", "required"]
    assert defaults["key.serializer"] == ["not set", "required"]
    assert defaults["acks"] == ["`all`", "`all`"]
    assert defaults["enable.idempotence"] == ["`true`", "`true`"]
    assert defaults["batch.size"] == ["`524288`", "`16384`"]
    assert defaults["retries"] == [f"`{INT32_MAX}`"] * 2
    assert defaults["interceptor.classes"] == ["not set", "not set"]


@pytest.mark.parametrize(("page", "names"), [("serializers.md", SHORT_NAMES), ("partitioners.md", NAMES)])
def test_a_page_has_every_name_that_an_option_takes(page: str, names: Iterable[str]) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text] == []
