"""The notebook about schemas runs from its first cell to its last in this process, and its reports are shown as HTML."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "schemas.ipynb"


def run(source: str, name: str, names: dict[str, Any]) -> Any:
    """Runs a cell and returns the value of an expression in its last line, which a notebook shows."""
    *body, last = ast.parse(source, name).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], ast.Expr(ast.Constant(None))
    exec(compile(ast.Module(body, []), name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names)


@pytest.mark.spark
def test_the_cells_run_in_their_order(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ.get("PYSPARK_PYTHON", ""))  # a cell sets it
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    sks.register(spark).close()  # a test may have left one, which has counted
    names: dict[str, Any] = {}
    shown = []
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                value = run("".join(cell["source"]), f"{NOTEBOOK.name}, {cell['id']}", names)
                shown += [value._repr_html_()] if hasattr(value, "_repr_html_") else []
    finally:
        for name in ("consumer", "registry", "broker", "metrics"):
            if name in names:
                getattr(names[name], "stop", getattr(names[name], "close", lambda: None))()
    assert len(names["found"]) == 1000
    assert "records     1,000\n" in capsys.readouterr().out
    report, table, _, metrics = shown
    assert "<dd>1,000<" in report
    assert "<b>committed</b>: 2,000 records" in metrics
    assert "<td>orders-text</td>" in table
