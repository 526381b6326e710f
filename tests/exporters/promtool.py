"""Runs Prometheus' own promtool."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs it in a folder. Skips the test where it is not installed: it is no Python package, and installing it needs root."""
    found = shutil.which(os.environ.get("PROMTOOL", "promtool"))
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus); PROMTOOL names one elsewhere")
    return subprocess.run([found, *arguments], cwd=folder, check=False, capture_output=True, text=True, timeout=60)
