"""Settings of the documentation site. `make docs` builds it with Sphinx from the Markdown files of this folder."""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "spark-kafka-sink"
author = "the authors of spark-kafka-sink"
copyright = author
release = importlib.metadata.version(project)

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/__pycache__"]
# Text that is copied into a search keeps its straight quotes.
smartquotes = False

# Links to headings use the names that GitHub gives them.
myst_heading_anchors = 4
# Blocks without a language are terminal output, not Python.
highlight_language = "none"
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/spark-kafka-sink/spark-kafka-sink/",
    "source_branch": "main",
    "source_directory": "docs/",
}

_FILES: Final = "https://github.com/spark-kafka-sink/spark-kafka-sink/blob/main/"


def _link_to_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Turns links to files outside of docs/ into links to the repository."""
    source[0] = re.sub(r"\]\(\.\./", f"]({_FILES}", source[0])


def _name_pages_by_title(app: Sphinx, page: str, source: list[str]) -> None:
    """Gives links that show the name of a file, which readers of the repository know, the title of the page."""
    source[0] = re.sub(r"\[[a-z-]+\.md\](\([a-z-]+\.md(?:#[^)]*)?\))", r"[]\1", source[0])


def setup(app: Sphinx) -> None:
    """Connects the functions above; Sphinx calls it."""
    app.connect("source-read", _link_to_repository)
    app.connect("source-read", _name_pages_by_title)
