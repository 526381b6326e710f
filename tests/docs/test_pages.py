"""The pages that are made from the code are those of this code, their links lead somewhere, and nothing public is left untold."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import spark_kafka_sink
from docs.api_page import PAGES as API_PAGES
from docs.markdown import anchor
from docs.pages import FOLDER, PAGES
from docs.public_names import BROKER, INSIDE, SECTIONS, errors, exported, undocumented
from spark_kafka_sink import broker
from tests.every import every

NAMES = [name for names in SECTIONS.values() for name in names]


@every("name", PAGES)
def test_a_page_is_what_the_code_makes_of_it(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "out of date: run `make docs`"


def test_everything_that_is_exported_is_on_a_page() -> None:
    assert {*NAMES, "KafkaSinkError", "errors"} == set(spark_kafka_sink.__all__)
    assert len(NAMES) == len(set(NAMES))


def test_everything_that_the_broker_exports_is_on_its_page() -> None:
    numbers = {"AclOperation", "ApiKey", "ErrorCode", "PatternType", "Permission", "ResourceType"}
    assert {*BROKER, *numbers} == set(broker.__all__)


@every("name", spark_kafka_sink.__all__)
def test_what_is_exported_is_there(name: str) -> None:
    assert name in dir(spark_kafka_sink)
    assert getattr(spark_kafka_sink, name).__name__.rpartition(".")[2] == name


@every("name", [*NAMES, *BROKER])
def test_a_public_name_its_methods_parameters_and_fields_are_documented(name: str) -> None:
    assert undocumented(name, exported(name)) == []


def test_each_error_is_documented() -> None:
    assert [error.name for error in errors() if not error.docstring] == []


@functools.cache
def api_pages() -> str:
    return "".join(PAGES[page]() for page in API_PAGES if page != "api.md")


@every("name", [*NAMES, *BROKER, "Errors"])
def test_the_section_of_a_name_links_to_the_file_that_defines_it(name: str) -> None:
    section = re.search(rf"^##? {name}\n(.*?)(?=^##? |\Z)", api_pages(), re.MULTILINE | re.DOTALL)
    assert section is not None
    (path,) = re.findall(r"^Source: \[.*\]\(\.\./(.*)\)$", section[1], re.MULTILINE)
    defined = "KafkaSinkError" if name == "Errors" else name
    assert re.search(rf"^(?:class|def) {defined}\b", (FOLDER.parent / path).read_text(encoding="utf-8"), re.MULTILINE)


@every("name", INSIDE)
def test_what_is_left_out_of_a_class_is_still_there(name: str) -> None:
    assert set(INSIDE[name]) <= set(exported(name).members)


def headings(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@every("page", [*sorted(FOLDER.glob("*.md")), *sorted(FOLDER.parent.glob("*.md"))])
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("https://"):
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not heading or heading in headings(target), link


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "tests/README.md"])
def test_a_file_that_a_page_names_is_there(page: str) -> None:
    root = FOLDER.parent
    named = set(re.findall(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)`", (root / page).read_text(encoding="utf-8")))
    files = [f"/{path.relative_to(root)}" for folder in ("spark_kafka_sink", "tests") for path in (root / folder).rglob("*.py")]

    assert len(named) > 3
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in files)] == []
