"""Log lines and errors that a page quotes are those that the code writes, so that readers can search and alert for them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from spark_kafka_sink import version

SOURCE = Path(version.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
# A code span of three plain words or more. Those of one or two words are names and options.
_QUOTED = re.compile(r"`([A-Za-z][A-Za-z']*(?: [A-Za-z']+){2,})`")


@cache
def texts() -> str:
    """Returns all texts of the package, with "…" in place of the values in f-strings."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
    return "\n".join(found)


@pytest.mark.parametrize("page", ["log.md", "monitoring.md", "security.md"])
def test_a_quoted_text_is_one_that_the_code_writes(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert [quoted for quoted in _QUOTED.findall(prose) if quoted not in texts()] == []


def test_the_log_line_of_the_page_has_the_words_of_the_code() -> None:
    (line,) = re.findall(r"^.* WARNING .*$", (DOCS / "log.md").read_text(encoding="utf-8"), re.MULTILINE)
    for words in ("has not responded for", "waiting for it", "could not connect to"):
        assert words in line
        assert words in texts()
