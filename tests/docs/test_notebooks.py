"""The notebooks in docs/notebooks run in a real kernel, and have the outputs that readers see."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.run_notebooks import executed, notebooks

NOTEBOOKS = [
    pytest.param(file, id=file.stem, marks=[] if file.stem == "publish" else [pytest.mark.whole("starts Spark again, in 40 s")])
    for file in notebooks()
]


def kinds(notebook: Any) -> list[tuple[str, list[list[str]]]]:
    """Returns each cell with code, and what its outputs are."""
    return [
        (cell["id"], [[output["output_type"], *sorted(output.get("data", ()))] for output in cell["outputs"]])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def texts(file: Path) -> str:
    """Returns everything that the outputs of a notebook show, as text."""
    outputs = [output for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] for output in cell.get("outputs", ())]
    shown = [output.get("text", []) for output in outputs] + [each for one in outputs for each in one.get("data", {}).values()]
    return "\n".join("".join(each) for each in shown)


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("file", NOTEBOOKS)
def test_a_notebook_runs_and_shows_what_its_file_shows(file: Path) -> None:
    assert kinds(executed(file)) == kinds(json.loads(file.read_text(encoding="utf-8")))


def test_outputs_name_neither_paths_nor_ports_of_a_machine() -> None:
    for file in notebooks():
        found = re.findall(r"/(?:home|root|tmp|usr|Users|opt|work)/\S*|127\.0\.0\.1:\d+|localhost:\d+", texts(file))
        assert not found, file.name


def test_notebooks_show_the_bar_the_charts_and_what_an_interrupt_leaves() -> None:
    publish, streams = (texts(file) for file in notebooks() if file.stem in ("publish", "streams"))
    assert re.search(r"kafka_sink: 4 of 4 tasks, 200,000 rows, [0-9,]+ rows/s", publish)
    assert re.search(r"Kafka has acknowledged [1-9][0-9,]* rows or more; they stay in their topics", publish)
    assert "<b>committed</b>: 200,000 records" in publish
    assert "trend" in streams
    assert "Time to acknowledgement of a record batch" in streams
    assert "Time of the commit" in streams
