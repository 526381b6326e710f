"""What is in the wheel and the sdist, and what their metadata says."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import spark_kafka_sink
from spark_kafka_sink.errors import DOCS_URL
from tests.package.programs import ROOT

pytestmark = pytest.mark.slow

PACKAGES = ("spark_kafka_sink", "pyspark_kafka_sink")
REPOSITORY = "https://github.com/spark-kafka-sink/spark-kafka-sink"
RAW = "https://raw.githubusercontent.com/spark-kafka-sink/spark-kafka-sink/main/"
NAME = f"spark_kafka_sink-{spark_kafka_sink.__version__}"


def sources() -> set[str]:
    """Returns the files of the package that are not ignored, without its pages for developers."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30)
    return {name for name in listed.stdout.splitlines() if not name.endswith(".md")}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        return Parser().parsestr(file.read(f"{NAME}.dist-info/METADATA").decode())


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    info = {f"{NAME}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    with zipfile.ZipFile(wheel) as file:
        assert set(file.namelist()) == sources() | info


def test_the_sdist_has_the_package_and_what_builds_it(dist: Path) -> None:
    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore"}
    with tarfile.open(dist / f"{NAME}.tar.gz") as file:
        names = {name.removeprefix(f"{NAME}/") for name in file.getnames()}
    assert {name for name in names if not name.endswith(".md") or "/" not in name} == sources() | beside


def names(requirements: Iterable[str]) -> set[str]:
    return {Requirement(line).name for line in requirements}


def test_the_metadata_has_license_authors_links_and_dependencies(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Name"] == "spark-kafka-sink"
    assert told["Version"] == spark_kafka_sink.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["License-File"] == "LICENSE"
    assert told["Author"] == "The spark-kafka-sink authors"
    assert told["Requires-Python"] == ">=3.11"
    links = dict(line.split(", ") for line in told.get_all("Project-URL", []))
    assert set(links) == {"Homepage", "Repository", "Documentation", "Changelog", "Issues"}
    assert links["Documentation"] == DOCS_URL
    required = told.get_all("Requires-Dist", [])
    core = names(line for line in required if "extra ==" not in line)
    assert core == {"pyarrow", "numpy", "crc32c", "lz4", "zstandard", "cramjam", "click"}
    assert names(line for line in required if "extra == 'spark'" in line) == {"pyspark", "pandas", "tqdm"}
    extras = {"spark", "tls", "aws", "azure", "gcp", "kerberos", "protobuf", "json-schema"}
    extras |= {"prometheus", "openlineage", "opentelemetry", "all", "verify", "docs", "dev"}
    assert set(told.get_all("Provides-Extra", [])) == extras


def test_the_description_links_to_pages_that_an_index_can_reach(wheel: Path) -> None:
    readme, shown = (ROOT / "README.md").read_text(), metadata(wheel).get_payload()
    assert isinstance(shown, str)
    written, links = (re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", text) for text in (readme, shown))
    assert links
    assert len(links) == len(written)
    for (image, before), (_, after) in zip(written, links, strict=True):
        if before.startswith(("https://", "#")):
            expected = before
        elif image:
            expected = RAW + before
        elif before.startswith("docs/"):
            expected = f"{DOCS_URL}/" + before.removeprefix("docs/").replace(".md", ".html")
        else:
            expected = f"{REPOSITORY}/blob/main/{before}"
        assert after == expected


def test_who_builds_it_elsewhere_from_the_sdist_gets_the_same_files_bit_for_bit(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"{NAME}.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    build = [sys.executable, "-m", "build", "--outdir", str(tmp_path / "again"), str(tmp_path / NAME)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    for first in dist.iterdir():
        assert (tmp_path / "again" / first.name).read_bytes() == first.read_bytes()


def test_twine_accepts_both(dist: Path) -> None:
    checked = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    done = subprocess.run(checked, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
