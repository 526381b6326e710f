"""`python -m docs.run_notebooks [NAME]` runs the notebooks in docs/notebooks and writes their outputs, as readers see them.

What differs between machines is left out: paths, the log of Spark's JVM, and when a cell ran.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = Path(__file__).parent / "notebooks"
CELL_S: Final = 300
_KEPT: Final = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebooks() -> list[Path]:
    """Returns all of them."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(file: Path) -> Any:
    """Runs a notebook in a new kernel with this interpreter. Returns it with its outputs, or raises CellExecutionError."""
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client.execute(env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"})
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """Returns the notebook without what differs between machines."""
    notebook.metadata = nbformat.from_dict(_KEPT)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                output.get("metadata", {}).clear()
    return notebook


def main(names: list[str]) -> None:
    """Runs the notebooks with these names, or all."""
    for file in notebooks():
        if not names or file.stem in names:
            notebook = executed(file)
            file.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
