"""What the log's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "files"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """A partition's folder that is not there yet, or none: the log is in memory."""
    return tmp_path / "topic-0" if request.param == "files" else None


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"
