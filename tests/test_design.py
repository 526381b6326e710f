"""DESIGN.md names files and functions that exist, and stays short."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "spark_kafka_sink"
TEXT = (PROJECT / "DESIGN.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py):([\w]+)`")


def test_it_is_at_most_12_kilobytes() -> None:
    assert len(TEXT.encode()) <= 12 * 1024


def test_every_function_that_it_names_is_in_its_file() -> None:
    places = PLACE.findall(TEXT)

    assert len(places) > 40
    assert [place for place in places if not defines(*place)] == []


def defines(path: str, name: str) -> bool:
    folders = (PACKAGE, PACKAGE / "producer", PACKAGE / "producer/accumulator")
    file = next((folder / path for folder in folders if (folder / path).exists()), None)
    return file is not None and re.search(rf"^ *(?:def|class) {name}\b", file.read_text(encoding="utf-8"), re.M) is not None


def test_every_file_that_it_names_exists() -> None:
    files = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|toml))[`:]", TEXT))

    assert [name for name in files if not (PROJECT / name).exists() and not list(PACKAGE.glob(f"**/{name}"))] == []


def test_its_links_lead_somewhere() -> None:
    assert [link for link in re.findall(r"\]\(([^)#:]+)", TEXT) if not (PROJECT / link).exists()] == []
