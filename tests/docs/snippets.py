"""Finds the Python blocks of docs/, and runs those of a page as a reader does: one after the other, in one program.

The first block that fails raises; its traceback has the page and the line. To keep a block from being run, put a paragraph with
the reason above it, which readers see, too: `*Not tested: it needs a Databricks workspace.*`
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docs.pages import FOLDER

LANGUAGES: Final = frozenset({"", "python", "bash", "console", "text", "toml", "ini", "yaml", "json", "sql", "xml", "{toctree}"})
"""What a block may be marked as: with other names, Python could stand there and not be run."""

_FENCE: Final = re.compile(
    r"^(?:\*Not tested: (?P<reason>[^\n]+)\*\n\n)?(?P<indent> *)```(?P<language>[^\n]*)\n(?P<source>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_SPARK: Final = frozenset({"spark", "df", "stream", "query", "SparkSession", "pyspark"})
_SERVERS: Final = re.compile(r"(?P<quote>[\"'])[\w.-]+:\d{4,5}(?:, ?[\w.-]+:\d{4,5})*(?P=quote)")
_REGISTRY: Final = "http://localhost:8081"
_CHECKPOINT: Final = re.compile(r"(checkpointLocation[\"'](?:, ?|: ?))[\"'][^\"']*[\"']")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of a page. line: that of its fence. reason: why it is not run, if it is not."""

    page: str
    line: int
    language: str
    source: str
    reason: str | None

    @property
    def names(self) -> frozenset[str]:
        """Returns the names in the source, and the modules that it imports."""
        nodes = list(ast.walk(ast.parse(self.source)))
        modules = {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        return frozenset({node.id for node in nodes if isinstance(node, ast.Name)} | arguments | modules)

    @property
    def needs_spark(self) -> bool:
        return not _SPARK.isdisjoint(self.names)

    def __str__(self) -> str:
        return f"docs/{self.page}:{self.line}"


def blocks(page: str) -> list[Snippet]:
    """Returns the fenced blocks of a page, in every language."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    return list(_blocks(page, text))


def _blocks(page: str, text: str) -> Iterator[Snippet]:
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        yield Snippet(page, line, match["language"], textwrap.dedent(match["source"]), match["reason"])


def python_blocks(page: str) -> list[Snippet]:
    return [block for block in blocks(page) if block.language == "python"]


PAGES: Final = sorted(file.name for file in FOLDER.glob("*.md") if not file.name.startswith(("api", "pipelines")))
"""All pages but those whose blocks are signatures, and the one that tests/spark_connect runs."""


class Program:
    """The blocks of a page as one program.

    servers: replaces the addresses in the blocks. folder: replaces the checkpoints'. given: what blocks may use without making
    it, by name; it is called when a block names it. always: those that each block gets again, whatever one before made of them.
    registry: replaces the URL of the schema registry.
    """

    def __init__(
        self,
        servers: str,
        folder: Path,
        given: Mapping[str, Callable[[], Any]],
        always: Mapping[str, Callable[[], Any]],
        registry: str = _REGISTRY,
    ) -> None:
        self._servers = servers
        self._registry = registry
        self._folder = folder
        self._given = given
        self._always = always
        self._names: dict[str, Any] = {}

    def run(self, snippet: Snippet) -> None:
        names = snippet.names
        self._names |= {name: make() for name, make in self._given.items() if name in names and name not in self._names}
        self._names |= {name: make() for name, make in self._always.items() if name in names}
        source = _SERVERS.sub(rf"\g<quote>{self._servers}\g<quote>", snippet.source)
        source = source.replace(_REGISTRY, self._registry)
        checkpoint = f'"{self._folder / f"checkpoint-{snippet.line}"}"'
        source = _CHECKPOINT.sub(lambda match: match[1] + checkpoint, source)
        # The lines of tracebacks are those of the page.
        code = compile("\n" * snippet.line + source, str(FOLDER / snippet.page), "exec")
        exec(code, self._names)
        for test in re.findall(r"^def (test_\w+)", snippet.source, re.MULTILINE):
            self._call(self._names[test])

    def _call(self, test: Callable[..., None]) -> None:
        """Calls a test of pytest with what its fixtures would be."""
        fixtures = {**self._given, **self._always}
        test(**{name: fixtures[name]() for name in inspect.signature(test).parameters})
