"""The notebook in examples/ runs from its first cell to its last."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "demo.ipynb"


@pytest.mark.spark
def test_the_cells_run_in_their_order(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ.get("PYSPARK_PYTHON", ""))  # a cell sets it
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                assert not cell["outputs"], "outputs would be old soon"
                exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, {cell['id']}", "exec"), names)
    finally:
        for name in ("consumer", "registry", "broker"):
            if name in names:
                getattr(names[name], "stop", getattr(names[name], "close", lambda: None))()
    assert len(names["found"]) == 1000
