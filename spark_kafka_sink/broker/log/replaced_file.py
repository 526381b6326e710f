"""Small files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def write_whole(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Under another name first, then renamed: a reader, and a start after a crash, sees the old content or the new. OSError as
    the file system says it, with nothing changed."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
