"""The kept corpus: one file of base64 lines for each target, the shortest inputs first. Inputs that once failed stay in it."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "corpus"
MOST_BYTES: Final = 32_000
"""Of one file. Golden messages and batches, with which each run begins as well, are kept elsewhere."""


def kept(target: str) -> list[bytes]:
    file = FOLDER / f"{target}.txt"
    return [base64.b64decode(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> int:
    """Replaces the corpus of a target by these inputs, as many as fit. Returns how many are kept."""
    lines, size = [], 0
    for line in sorted({base64.b64encode(each).decode() for each in inputs}, key=lambda line: (len(line), line)):
        size += len(line) + 1
        if size > MOST_BYTES:
            break
        lines.append(line)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines))
    return len(lines)
