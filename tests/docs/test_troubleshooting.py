"""docs/troubleshooting.md has a section with cause and fix for each error code that the package raises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import spark_kafka_sink
from docs.pages import FOLDER
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.every import every

TEXT: Final = (FOLDER / "troubleshooting.md").read_text(encoding="utf-8")
PACKAGE: Final = Path(spark_kafka_sink.__file__).parent
CODES: Final = sorted(
    {
        code
        for file in PACKAGE.rglob("*.py")
        for code in re.findall(r"^    code(?:: ClassVar\[str\])? = \"([A-Z_]+)\"$", file.read_text(encoding="utf-8"), re.M)
    }
)


def sections(heading: str) -> Mapping[str, str]:
    """Returns the text of each section below a heading of the second level."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    return dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", part, re.M | re.S))


ERRORS: Final = sections("Error codes")
KAFKAS: Final = sections("Kafka's error codes")


@every("code", CODES)
def test_each_code_has_a_section(code: str) -> None:
    assert TEXT.count(f"### {code}\n") == 1
    assert code in ERRORS


@every("code", ERRORS)
def test_a_section_has_a_cause_and_a_fix_in_few_lines(code: str) -> None:
    lines = [line for line in ERRORS[code].splitlines() if line]

    assert lines[0].startswith("**Cause.** ")
    assert any(line.startswith(("**Fix.** ", "| the text says | fix |")) for line in lines)
    assert 2 <= len(lines) <= 10


def test_names_of_kafkas_errors_are_kafkas() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", "".join(KAFKAS.values()), re.M)
    named = [name for row in rows for name in re.findall("`([A-Z_]+)`", row)]

    assert len(named) > 30
    assert [name for name in named if name not in ErrorCode.__members__] == []
