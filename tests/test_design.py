"""DESIGN.md and the pages of the rooms name files and functions that exist, and DESIGN.md stays short."""

from __future__ import annotations

import re
from pathlib import Path

from tests.every import every

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "spark_kafka_sink"
TEXT = (PROJECT / "DESIGN.md").read_text(encoding="utf-8")
PAGES = sorted(PACKAGE.glob("*/README.md"))
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


# The pages of the rooms: spark_kafka_sink/*/README.md


def page_of(folder: Path) -> Path | None:
    """Returns the page of a folder, or that of the room that it is in."""
    room = PACKAGE / folder.relative_to(PACKAGE).parts[0]
    return next((page for page in (folder / "README.md", room / "README.md") if page.exists()), None)


def test_each_folder_with_more_than_eight_files_has_a_page() -> None:
    folders = [folder for folder in PACKAGE.rglob("*/") if len(list(folder.glob("*.py"))) > 8]

    assert len(folders) > 15
    assert [folder for folder in folders if page_of(folder) is None] == []


@every("page", PAGES)
def test_a_page_names_files_and_entries_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"`((?:\w+/)*\w+\.py)[`:]", text))
    rows = "".join(re.findall(r"^\|.*\| entered by \|\n((?:\|.*\n)+)", text, re.M)).splitlines()
    entries = {entry for row in rows for entry in re.findall(r"`([A-Za-z_.]+)`", row.split("|")[-2])}
    code = "\n".join(file.read_text(encoding="utf-8") for file in page.parent.rglob("*.py"))

    assert [name for name in files if not (PROJECT / name).exists() and not is_a_file(name)] == []
    assert [entry for entry in entries if not entry.endswith(".py") and not is_in(code, entry)] == []


def is_a_file(name: str) -> bool:
    return any(next(folder.glob(f"**/{name}"), None) for folder in (PACKAGE, PROJECT / "tests"))


def is_in(code: str, entry: str) -> bool:
    return all(re.search(rf"^ *(?:(?:def|class) )?{part}\b", code, re.M) for part in entry.split("."))
