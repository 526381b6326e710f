"""The pages of options have a heading for each option of ours, and name each option of Java's producer."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from docs.options_page import PAGES
from docs.pages import FOLDER
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.security_config import SECURITY_NAMES, SECURITY_OPTIONS
from spark_kafka_sink.options.sink_options import SINK_OPTIONS
from spark_kafka_sink.producer.partitioners.partitioner_table import NAMES
from spark_kafka_sink.producer.serializers.serializer_table import SHORT_NAMES
from tests.every import every
from tests.golden_options import java_options

PAGE = "\n".join(make() for make in PAGES.values())
ENTRIES = {name: text.partition("\n## ")[0] for name, text in re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)}
ROWS = {name for cell in re.findall(r"^\| (`.+?`) \|", PAGE, re.M) for name in re.findall("`([^`]+)`", cell)}
PREFIXES = tuple(name.removesuffix("*") for name in ROWS if name.endswith("*"))


@every("name", [*(option.name for option in SINK_OPTIONS.values()), *OPTIONS, *SECURITY_OPTIONS])
def test_each_option_has_a_heading_of_its_own(name: str) -> None:
    assert re.findall(r"^#+ (\S+)$", PAGE, re.M).count(name) == 1


@every("name", {*java_options(), *SECURITY_NAMES})
def test_every_option_of_javas_producer_and_of_security_is_on_the_page(name: str) -> None:
    assert name in ENTRIES or name in ROWS or name.startswith(PREFIXES)


def test_a_secret_is_marked() -> None:
    assert [name for name in SECURITY_OPTIONS if re.search("^- (.*; s|S)ecret\\b", ENTRIES[name], re.M)] == [
        name for name, option in SECURITY_OPTIONS.items() if option.kind.is_secret
    ]


@pytest.mark.parametrize(("page", "names"), [("serializers.md", SHORT_NAMES), ("partitioners.md", NAMES)])
def test_a_page_has_every_name_that_an_option_takes(page: str, names: Iterable[str]) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text] == []
