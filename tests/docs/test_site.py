"""The site builds without warnings, and what errors link to is on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import FOLDER
from spark_kafka_sink.errors import DOCS_URL, KafkaSinkError
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.security_config import SECURITY_OPTIONS
from spark_kafka_sink.options.sink_options import SINK_OPTIONS
from tests.docs.test_troubleshooting import CODES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = FOLDER.parent
SPHINX = "-m sphinx -E -W --keep-going -q -b html"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, *SPHINX.split(), "-d", str(folder / "doctrees"), "docs", str(folder / "html")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return folder / "html"


def ids(page: Path) -> list[str]:
    return re.findall(r'<section id="([^"]+)">', page.read_text(encoding="utf-8"))


def test_each_page_is_on_the_start_page(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    body = start.partition('<article role="main"')[2].partition("</article>")[0]

    assert [page.stem for page in FOLDER.glob("*.md") if page.stem != "index" and f'href="{page.stem}.html"' not in body] == []


def test_the_link_of_an_error_leads_to_its_section(site: Path) -> None:
    found = ids(site / "troubleshooting.html")

    assert [code for code in CODES if found.count(link_of(code).partition("#")[2]) != 1] == []
    assert {link_of(code).partition("#")[0] for code in CODES} == {f"{DOCS_URL}/troubleshooting.html"}


def link_of(code: str) -> str:
    error: KafkaSinkError = type("Failed", (KafkaSinkError,), {"code": code})("")
    return error.link


def test_addresses_in_the_code_lead_to_a_section(site: Path) -> None:
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "spark_kafka_sink").rglob("*.py"))
    named = set(re.findall(r"/([a-z-]+)\.html#([a-z0-9-]+)", code))

    assert [f"{page}#{name}" for page, name in named if name not in ids(site / f"{page}.html")] == []


def test_each_option_has_an_anchor(site: Path) -> None:
    found = [name for page in site.glob("options-*.html") for name in ids(page)]
    names = [*(option.name for option in SINK_OPTIONS.values()), *OPTIONS, *SECURITY_OPTIONS]

    assert [name for name in names if found.count(name.lower().replace(".", "-")) != 1] == []


def test_a_link_to_the_repository_stays_a_link(site: Path) -> None:
    linked = [page for page in FOLDER.glob("*.md") if "](../" in page.read_text(encoding="utf-8")]

    assert [page.stem for page in linked if 'href="https://github.com/' not in (site / f"{page.stem}.html").read_text()] == []
