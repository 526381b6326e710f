"""The blocks of docs/security.md as options, for tests that run each against a broker of its kind.

block = BLOCKS["SCRAM"]
options = block.options(secrets={"password": "..."})  # with `kafka.`, as Spark takes them
settings = block.settings(**{"bootstrap.servers": broker.bootstrap_servers, "ssl.truststore.location": ca})  # without
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from docs.pages import FOLDER

PAGE: Final[Path] = FOLDER / "security.md"
PREFIX: Final = "kafka."


@dataclass(frozen=True, slots=True)
class Block:
    """A Python block of the page that sets `options`. title: the heading above it; the second under one has " 2" behind it."""

    title: str
    source: str

    def options(self, secrets: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the options as the block sets them. secrets: what Databricks has, by key; a missing one is `key` itself."""
        found = secrets or {}
        dbutils = SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: found.get(key, key)))
        names: dict[str, dict[str, str]] = {}
        exec(compile(self.source, f"{PAGE.name}: {self.title}", "exec"), {"dbutils": dbutils}, names)
        return names["options"]

    def settings(self, secrets: Mapping[str, str] | None = None, /, **others: str) -> dict[str, str]:
        """Returns the options by Kafka's names. others: replace values of the block, and must name options of it."""
        own = {name.removeprefix(PREFIX): value for name, value in self.options(secrets).items()}
        assert set(others) <= set(own), f"{self.title} has no {sorted(set(others) - set(own))}"
        return own | others


def _blocks(text: str) -> Iterator[Block]:
    seen: dict[str, int] = {}
    heading = ""
    for match in re.finditer(r"^#+ (?P<heading>[^\n]+)$|^```python\n(?P<source>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match["heading"]:
            heading = match["heading"]
        elif "options = " in match["source"]:
            seen[heading] = seen.get(heading, 0) + 1
            yield Block(heading if seen[heading] == 1 else f"{heading} {seen[heading]}", match["source"])


BLOCKS: Final[Mapping[str, Block]] = {block.title: block for block in _blocks(PAGE.read_text(encoding="utf-8"))}


def acl_lines(heading: str) -> list[list[str]]:
    """Returns the lines of kafka-acls under a heading, as words."""
    under = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2].partition("\n#")[0]
    return [shlex.split(line) for line in re.findall(r"^kafka-acls .*$", under, re.MULTILINE)]
